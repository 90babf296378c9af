//! The server's side of the API: connections, and what becomes of a request.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::rejection::PathRejection;
use axum::extract::{Extension, Path, RawQuery};
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, get, on};
use http_body_util::LengthLimitError;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use super::answer::{Problem, Text, Update, event_stream, events, page_of, text};
use super::dashboard;
use super::openapi;
use super::operations::{OPERATIONS, Operation};
use super::page;
use super::parts::{Parts, Query};
use super::seats::{Seat, Seats, Work};
use super::tokens::Tokens;
use super::{BODY_BYTES_MAX, PREFIX, Serve};
use crate::control::{Asker, ErrorKind, EventView, HasKind, Progress, Request, Shows};

/// After a failed accept: until the next try.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// How long the rest of an answer may take on a connection that gives way to another, or when the
/// target ends.
const LAST_ANSWER: Duration = Duration::from_secs(1);

/// Clients of a way in that may follow events at a time, so that others find a place.
const FOLLOWERS: usize = 16;
/// Events on their way to one that follows them.
const ON_THE_WAY: usize = 16;
/// How often it is tried to send an event, and how long after each.
const TRIES: usize = 300;
const NEXT_TRY: Duration = Duration::from_millis(100);

/// All who come by one way: those of one never keep those of another out.
pub(super) struct Listener {
    router: Router,
    seats: Seats,
    /// A clone for each connection; and what ends when all have gone.
    open: mpsc::Sender<()>,
    closed: mpsc::Receiver<()>,
}

impl Listener {
    /// Answers by `serve`: everybody, or those who have one of these tokens.
    pub(super) fn new<T, E>(serve: &Arc<impl Serve<T, E>>, tokens: Option<Tokens>) -> Self
    where
        T: Shows,
        E: HasKind + 'static,
    {
        let (open, closed) = mpsc::channel(1);
        Self {
            router: router(serve).layer(Extension(tokens.map(Arc::new))),
            seats: Seats::default(),
            open,
            closed,
        }
    }

    /// Serves all whom `accept` gives, without end.
    pub(super) async fn serve<S: AsyncRead + AsyncWrite + Send + Unpin + 'static>(
        &self,
        accept: impl AsyncFn() -> io::Result<S>,
    ) {
        loop {
            match accept().await {
                Ok(stream) => self.seat(stream),
                // No file descriptors left: it would fail again at once.
                Err(_) => sleep(ACCEPT_RETRY).await,
            }
        }
    }

    fn seat(&self, stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) {
        let open = self.open.clone();
        match self.seats.take() {
            Some((seat, given_up)) => {
                let router = self.router.clone().layer(Extension(seat));
                tokio::spawn(async move {
                    converse(stream, router, given_up).await;
                    drop(open);
                });
            }
            None => drop(tokio::spawn(refuse(stream))),
        }
    }

    /// Closes all connections, those with a request at work when it is answered.
    pub(super) async fn end(mut self) {
        self.seats.close();
        drop(self.open);
        // Nothing is sent: it ends when the last connection has gone.
        let _ = timeout(LAST_ANSWER, self.closed.recv()).await;
    }
}

/// One connection, until it ends or gives way to another.
async fn converse(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    router: Router,
    given_up: oneshot::Receiver<()>,
) {
    let service = TowerToHyperService::new(router);
    let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    tokio::select! {
        // A client that goes away in the middle gets no answer.
        _ = connection.as_mut() => return,
        _ = given_up => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = timeout(LAST_ANSWER, connection).await;
}

/// Tells one for whom there is no place.
async fn refuse(stream: impl AsyncRead + AsyncWrite + Unpin) {
    let busy = || {
        let detail = "too many requests are at work: ask again in a moment".to_owned();
        async { Problem::new(ErrorKind::Unavailable, detail) }
    };
    let service = TowerToHyperService::new(Router::new().fallback(busy));
    let mut http = http1::Builder::new();
    let connection = http
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    // Who does not hear it sees the end.
    let _ = timeout(LAST_ANSWER, connection).await;
}

/// All operations, with a problem for whatever else is asked.
fn router<T, E>(serve: &Arc<impl Serve<T, E>>) -> Router
where
    T: Shows,
    E: HasKind + 'static,
{
    let mut router = Router::new();
    let followers = Arc::new(Semaphore::new(FOLLOWERS));
    for operation in OPERATIONS {
        let (serve, followers) = (Arc::clone(serve), Arc::clone(&followers));
        let path = format!("{PREFIX}{}", operation.path);
        let handler = move |Extension(seat): Extension<Seat>,
                            Extension(tokens): Extension<Option<Arc<Tokens>>>,
                            names: Result<Path<HashMap<String, String>>, PathRejection>,
                            RawQuery(query): RawQuery,
                            headers: HeaderMap,
                            body: Body| async move {
            let asked = Asked {
                tokens,
                names,
                query,
                headers,
                body,
                followers,
            };
            answer(operation, asked, &seat, serve)
                .await
                .unwrap_or_else(IntoResponse::into_response)
        };
        router = router.route(&path, on(filter(&operation.method), handler));
    }
    let reference = |kind, text: String| get(move || async move { page_of(kind, text) });
    let document = openapi::document();
    router
        .route(PREFIX, get(index))
        .route(
            &format!("{PREFIX}/openapi.json"),
            reference("application/json", document.to_string()),
        )
        .route(
            &format!("{PREFIX}/reference"),
            reference("text/html; charset=utf-8", page::page(&document)),
        )
        .route(
            &format!("{PREFIX}/reference.css"),
            reference("text/css", page::STYLE.to_owned()),
        )
        .merge(dashboard::router())
        .fallback(unknown)
        .method_not_allowed_fallback(other_method)
}

fn filter(method: &Method) -> MethodFilter {
    MethodFilter::try_from(method.clone()).expect("operations have usual methods")
}

/// What can be asked, for people and programs that look around.
async fn index() -> Response {
    Text::Json(text(OPERATIONS)).into_response()
}

async fn other_method(method: Method, uri: Uri) -> Problem {
    unknown(method, uri)
        .await
        .with(StatusCode::METHOD_NOT_ALLOWED)
}

async fn unknown(method: Method, uri: Uri) -> Problem {
    let detail = format!(
        "there is no operation {method} {}: GET {PREFIX} lists all",
        uri.path()
    );
    Problem::new(ErrorKind::NotFound, detail)
}

/// A request as it came.
struct Asked {
    /// What its client has to have one of.
    tokens: Option<Arc<Tokens>>,
    names: Result<Path<HashMap<String, String>>, PathRejection>,
    query: Option<String>,
    headers: HeaderMap,
    body: Body,
    followers: Arc<Semaphore>,
}

async fn answer<T, E>(
    operation: &Operation,
    asked: Asked,
    seat: &Seat,
    serve: Arc<impl Serve<T, E>>,
) -> Result<Response, Problem>
where
    T: Shows,
    E: HasKind + 'static,
{
    if let Some(tokens) = &asked.tokens {
        let denied = tokens.check(operation, &asked.headers);
        denied.map_err(|why| Problem::of(&why))?;
    }
    let body = whole(asked.body, &asked.headers).await?;
    let Some(work) = seat.begin() else {
        // It has given way to another: nobody reads this.
        return Ok(Response::new(Body::empty()));
    };
    let follow = says(&asked.headers, header::ACCEPT, "text/event-stream");
    let Path(names) = asked.names.map_err(|why| {
        let detail = format!("the path is not understood: {why}");
        Problem::new(ErrorKind::Invalid, detail)
    })?;
    let parts = Parts::new(
        operation.query,
        names,
        asked.query.as_deref(),
        &body,
        follow,
    );
    let query = parts
        .as_ref()
        .map_or_else(|_| Query::default(), |it| it.query.clone());
    let last = asked.headers.get("last-event-id");
    let last = last.and_then(|id| id.to_str().ok()).map(str::to_owned);
    let request = parts
        .map(|parts| parts.after_event(last))
        .and_then(operation.read)
        .map_err(|why| Problem::of(&why))?;
    match follow {
        true if matches!(request, Request::Events(_)) => {
            let permit = asked.followers.try_acquire_owned().map_err(|_| {
                let detail =
                    format!("{FOLLOWERS} programs follow events here already: end one of them");
                Problem::new(ErrorKind::Unavailable, detail)
            })?;
            Ok(stream_it(request, serve, (work, permit)))
        }
        true => Ok(follow_it(request, serve, work)),
        false => carry_out(request, query, serve, work).await,
    }
}

/// All of the body, which is JSON if there is any.
async fn whole(body: Body, headers: &HeaderMap) -> Result<Bytes, Problem> {
    let invalid = |detail| Problem::new(ErrorKind::Invalid, detail);
    let body = to_bytes(body, BODY_BYTES_MAX).await.map_err(|error| {
        match error.into_inner().is::<LengthLimitError>() {
            true => invalid(format!(
                "a request has at most {} MiB, and nothing was done: apply the file in parts",
                BODY_BYTES_MAX >> 20
            ))
            .with(StatusCode::PAYLOAD_TOO_LARGE),
            false => invalid("the body was cut off: nothing was done".to_owned()),
        }
    })?;
    if !body.is_empty() && !says(headers, header::CONTENT_TYPE, "application/json") {
        let detail = "the body has to be JSON: send `Content-Type: application/json`".to_owned();
        return Err(invalid(detail).with(StatusCode::UNSUPPORTED_MEDIA_TYPE));
    }
    Ok(body)
}

/// Whether a header names a type of content.
fn says(headers: &HeaderMap, name: header::HeaderName, kind: &str) -> bool {
    let value = headers.get(name).and_then(|value| value.to_str().ok());
    value.is_some_and(|value| {
        let mut kinds = value.split(',').map(|one| one.split(';').next());
        kinds.any(|one| one.is_some_and(|one| one.trim().eq_ignore_ascii_case(kind)))
    })
}

/// Carries a request out and answers when it has ended.
async fn carry_out<T, E>(
    request: Request,
    query: Query,
    serve: Arc<impl Serve<T, E>>,
    work: Work,
) -> Result<Response, Problem>
where
    T: Shows,
    E: HasKind + 'static,
{
    let (client, _watch) = Client::new(None);
    let outcome = spawn_blocking(move || {
        let outcome = outcome(&*serve, request, &query, &client);
        drop(work);
        outcome
    });
    let panicked = |_| {
        let detail = "the target failed at this; its log says why".to_owned();
        Problem::new(ErrorKind::Internal, detail)
    };
    outcome
        .await
        .map_err(panicked)?
        .map(IntoResponse::into_response)
}

/// Carries a request out and tells how far it is.
fn follow_it<T, E>(request: Request, serve: Arc<impl Serve<T, E>>, work: Work) -> Response
where
    T: Shows,
    E: HasKind + 'static,
{
    let (send, updates) = mpsc::unbounded_channel();
    let (client, watch) = Client::new(Some(send.clone()));
    spawn_blocking(move || {
        let last = match outcome(&*serve, request, &Query::default(), &client) {
            Ok(text) => Update::Done(text),
            Err(problem) => Update::Failed(problem),
        };
        // One that does not hear it has gone.
        let _ = send.send(last);
        drop(work);
    });
    events(updates, watch)
}

/// Tells what happens, until the client goes or the target ends.
fn stream_it<T, E>(
    request: Request,
    serve: Arc<impl Serve<T, E>>,
    held: (Work, OwnedSemaphorePermit),
) -> Response
where
    T: Shows,
    E: HasKind + 'static,
{
    let (send, updates) = mpsc::channel(ON_THE_WAY);
    spawn_blocking(move || {
        let client = Follower(send);
        if let Err(problem) = outcome(&*serve, request, &Query::default(), &client) {
            // One that does not hear it has gone.
            let _ = client.0.try_send(Update::Failed(problem));
        }
        drop(held);
    });
    event_stream(updates)
}

fn outcome<T, E>(
    serve: &impl Serve<T, E>,
    request: Request,
    query: &Query,
    client: &dyn Asker,
) -> Result<Text, Problem>
where
    T: Shows,
    E: HasKind,
{
    match serve(request, client) {
        Ok(view) => Ok(match (view.metrics(), view.next()) {
            (Some(metrics), _) => Text::Metrics(metrics.to_owned()),
            (None, Some(next)) => Text::Part(text(&view), query.link_behind(next)),
            (None, None) if view.is_made() => Text::Made(text(&view)),
            (None, None) => Text::Json(text(&view)),
        }),
        Err(error) => Err(Problem::of(&error)),
    }
}

/// A client that waits for an answer.
struct Client {
    gone: Arc<AtomicBool>,
    updates: Option<mpsc::UnboundedSender<Update>>,
}

/// Dropped when nobody waits for the answer any more.
struct Watch(Arc<AtomicBool>);

impl Client {
    fn new(updates: Option<mpsc::UnboundedSender<Update>>) -> (Self, Watch) {
        let gone = Arc::new(AtomicBool::new(false));
        let watch = Watch(Arc::clone(&gone));
        (Self { gone, updates }, watch)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Asker for Client {
    fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    fn tell(&self, progress: Progress) {
        if let Some(updates) = &self.updates {
            // One that does not hear it has gone.
            let _ = updates.send(Update::Progress(progress));
        }
    }

    fn send(&self, _: Option<EventView>) -> bool {
        false
    }
}

/// A client that follows what happens.
struct Follower(mpsc::Sender<Update>);

impl Asker for Follower {
    fn is_gone(&self) -> bool {
        self.0.is_closed()
    }

    fn tell(&self, _: Progress) {}

    fn send(&self, event: Option<EventView>) -> bool {
        let mut update = event.map_or(Update::Beat, Update::Happened);
        for _ in 0..TRIES {
            match self.0.try_send(update) {
                Ok(()) => return true,
                Err(TrySendError::Closed(_)) => return false,
                Err(TrySendError::Full(back)) => update = back,
            }
            thread::sleep(NEXT_TRY);
        }
        false
    }
}
