//! What comes back over HTTP: the view as JSON, or a problem (RFC 9457) with a stable code.

use std::convert::Infallible;

use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response as Answered};
use futures_util::stream;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use super::accept;
use crate::control::{ErrorKind, EventView, HasKind, MetricsText, Progress};

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Problem {
    /// The status of the answer.
    pub status: u16,
    /// Who has to act.
    pub code: ErrorKind,
    /// One line that says what to do.
    pub detail: String,
}

impl Problem {
    /// Of an error that says who has to act.
    pub(super) fn of(error: &dyn HasKind) -> Self {
        Self::new(error.kind(), error.to_string())
    }

    pub(super) fn new(code: ErrorKind, detail: String) -> Self {
        Self {
            status: status(code).as_u16(),
            code,
            detail,
        }
    }

    /// With a status that says more than the code does.
    pub(super) fn with(mut self, status: StatusCode) -> Self {
        self.status = status.as_u16();
        self
    }
}

/// The status that says who has to act.
fn status(code: ErrorKind) -> StatusCode {
    match code {
        ErrorKind::Usage | ErrorKind::Invalid => StatusCode::BAD_REQUEST,
        ErrorKind::Forbidden => StatusCode::FORBIDDEN,
        ErrorKind::NotFound => StatusCode::NOT_FOUND,
        ErrorKind::InUse | ErrorKind::Refused => StatusCode::CONFLICT,
        ErrorKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        ErrorKind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Answered {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        of(status, "application/problem+json", text(&self) + "\n")
    }
}

/// The answer to a request that was carried out.
pub(super) enum Text {
    Json(String),
    /// What was made, and might have been there.
    Made(String),
    /// A part of a list, and where the next one is.
    Part(String, HeaderValue),
    /// For Prometheus.
    Metrics(MetricsText),
}

impl IntoResponse for Text {
    fn into_response(self) -> Answered {
        match self {
            Self::Json(text) => of(StatusCode::OK, "application/json", text + "\n"),
            Self::Made(text) => of(StatusCode::CREATED, "application/json", text + "\n"),
            Self::Part(text, next) => {
                let mut answer = Self::Json(text).into_response();
                answer.headers_mut().insert(header::LINK, next);
                answer
            }
            Self::Metrics(MetricsText::Text(text)) => of(StatusCode::OK, accept::TEXT, text),
            Self::Metrics(MetricsText::Protobuf(bytes)) => {
                of(StatusCode::OK, accept::PROTOBUF, bytes)
            }
        }
    }
}

/// A part of the reference, which needs nothing from anywhere else.
pub(super) fn page_of(kind: &'static str, text: String) -> Answered {
    let mut answer = of(StatusCode::OK, kind, text);
    let policy = HeaderValue::from_static("default-src 'none'; style-src 'self'");
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    answer
}

fn of(status: StatusCode, kind: &'static str, body: impl Into<Body>) -> Answered {
    let mut answer = Response::new(body.into());
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

/// An event of a request that is followed.
pub(super) enum Update {
    Progress(Progress),
    Done(Text),
    Failed(Problem),
    Happened(EventView),
    /// Nothing has happened; whether the client is there.
    Beat,
}

impl Update {
    fn event(self) -> Event {
        match self {
            Self::Progress(progress) => named("progress", &text(&progress)),
            Self::Done(
                Text::Json(view)
                | Text::Made(view)
                | Text::Part(view, _)
                | Text::Metrics(MetricsText::Text(view)),
            ) => named("done", &view),
            // Whoever follows accepts events, and so not this.
            Self::Done(Text::Metrics(MetricsText::Protobuf(_))) => named("done", ""),
            Self::Failed(problem) => named("failed", &text(&problem)),
            Self::Happened(event) => named("event", &text(&event)).id(event.id),
            Self::Beat => Event::default().comment("nothing new"),
        }
    }
}

fn named(name: &str, data: &str) -> Event {
    Event::default().event(name).data(data)
}

/// Server-sent events; `until` is dropped behind the last one, or when the client has gone.
pub(super) fn events<U: Send + 'static>(
    updates: mpsc::UnboundedReceiver<Update>,
    until: U,
) -> Answered {
    let all = stream::unfold((updates, until), |(mut updates, until)| async {
        let next = updates.recv().await?;
        Some((Ok::<_, Infallible>(next.event()), (updates, until)))
    });
    Sse::new(all).into_response()
}

/// The same of what goes on without end; who reads it slowly holds up only who sends it.
pub(super) fn event_stream(updates: mpsc::Receiver<Update>) -> Answered {
    let all = stream::unfold(updates, |mut updates| async {
        let next = updates.recv().await?;
        Some((Ok::<_, Infallible>(next.event()), updates))
    });
    Sse::new(all).into_response()
}

/// What is answered, as JSON.
pub(super) fn text(data: &(impl Serialize + ?Sized)) -> String {
    serde_json::to_string(data).expect("answers are plain data")
}
