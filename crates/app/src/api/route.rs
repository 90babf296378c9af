//! What becomes of a request: the operation that it asks, who may, and its answer.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::rejection::PathRejection;
use axum::extract::{Extension, Path};
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, get, on};
use http_body_util::LengthLimitError;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::spawn_blocking;

use super::accept;
use super::access::Peer;
use super::answer::{Problem, Text, Update, event_stream, events, page_of, text};
use super::dashboard;
use super::openapi;
use super::operations::{OPERATIONS, Operation};
use super::page;
use super::parts::{Parts, Query};
use super::record::{Draft, Entry, is_recorded};
use super::serve::{BODY_BYTES_MAX, PREFIX, Serve};
use super::slots::{Slot, Work};
use crate::audit::Audit;
use crate::control::{Asker, ErrorKind, EventView, HasKind, Progress, Request, Shows};

/// Clients of a way in that may follow events at a time, so that others find a place.
const FOLLOWERS: usize = 16;
/// Events on their way to one that follows them.
const ON_THE_WAY: usize = 16;
/// How often it is tried to send an event, and how long after each.
const TRIES: usize = 300;
const NEXT_TRY: Duration = Duration::from_millis(100);

/// All operations, with a problem for whatever else is asked.
pub(super) fn router<T, E>(serve: &Arc<impl Serve<T, E>>, audit: &Arc<Audit>) -> Router
where
    T: Shows,
    E: HasKind + 'static,
{
    let mut router = Router::new();
    let followers = Arc::new(Semaphore::new(FOLLOWERS));
    for operation in OPERATIONS {
        let (serve, audit) = (Arc::clone(serve), Arc::clone(audit));
        let followers = Arc::clone(&followers);
        let path = format!("{PREFIX}{}", operation.path);
        let handler = move |Extension(slot): Extension<Slot>,
                            Extension(peer): Extension<Arc<Peer>>,
                            names: Result<Path<HashMap<String, String>>, PathRejection>,
                            uri: Uri,
                            headers: HeaderMap,
                            body: Body| async move {
            let asked = Asked {
                names,
                uri,
                headers,
                followers,
            };
            answer(operation, asked, body, (&slot, &peer), serve, &audit)
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
    names: Result<Path<HashMap<String, String>>, PathRejection>,
    uri: Uri,
    headers: HeaderMap,
    followers: Arc<Semaphore>,
}

/// A request that is understood.
struct Understood {
    request: Request,
    query: Query,
    /// The client wants to know how far it is.
    follow: bool,
}

async fn answer<T, E>(
    operation: &Operation,
    asked: Asked,
    body: Body,
    (slot, peer): (&Slot, &Peer),
    serve: Arc<impl Serve<T, E>>,
    audit: &Arc<Audit>,
) -> Result<Response, Problem>
where
    T: Shows,
    E: HasKind + 'static,
{
    let (caller, may) = peer.ask(operation, &asked.headers);
    let draft = Draft::new(audit, operation, caller, &asked.uri);
    if let Err(why) = may {
        let problem = Problem::of(&why);
        draft.denied(&why, &problem).await;
        return Err(problem);
    }
    let draft = is_recorded(operation).then_some(draft);
    let body = match whole(body, &asked.headers).await {
        Ok(body) => body,
        Err(problem) => return Err(refused(draft, problem).await),
    };
    let draft = draft.map(|draft| draft.with_body(&body));
    let Some(work) = slot.begin() else {
        let detail = "the connection has given way to another, and nothing was done: ask again";
        let problem = Problem::new(ErrorKind::Unavailable, detail.to_owned());
        return Err(refused(draft, problem).await);
    };
    let followers = Arc::clone(&asked.followers);
    let Understood {
        request,
        query,
        follow,
    } = match understand(operation, asked, &body) {
        Ok(understood) => understood,
        Err(problem) => return Err(refused(draft, problem).await),
    };
    let entry = draft.map(|draft| draft.about(&request).begin());
    match follow {
        true if matches!(request, Request::Events(_)) => {
            let permit = followers.try_acquire_owned().map_err(|_| {
                let detail =
                    format!("{FOLLOWERS} programs follow events here already: end one of them");
                Problem::new(ErrorKind::Unavailable, detail)
            })?;
            Ok(stream_it(request, serve, (work, permit)))
        }
        true => Ok(follow_it(request, serve, work, entry)),
        false => carry_out(request, query, serve, work, entry).await,
    }
}

/// Records what was refused.
async fn refused(draft: Option<Draft>, problem: Problem) -> Problem {
    if let Some(draft) = draft {
        draft.refused(&problem).await;
    }
    problem
}

/// Makes a request of what came.
fn understand(operation: &Operation, asked: Asked, body: &[u8]) -> Result<Understood, Problem> {
    let follow = says(&asked.headers, header::ACCEPT, "text/event-stream");
    let Path(names) = asked.names.map_err(|why| {
        let detail = format!("the path is not understood: {why}");
        Problem::new(ErrorKind::Invalid, detail)
    })?;
    let parts = Parts::new(operation.query, names, asked.uri.query(), body, follow);
    let query = parts
        .as_ref()
        .map_or_else(|_| Query::default(), |it| it.query.clone());
    let last = asked.headers.get("last-event-id");
    let last = last.and_then(|id| id.to_str().ok()).map(str::to_owned);
    let request = parts
        .map(|parts| parts.after_event(last))
        .map(|parts| parts.in_form(accept::metrics(&asked.headers)))
        .and_then(operation.read)
        .map_err(|why| Problem::of(&why))?;
    Ok(Understood {
        request,
        query,
        follow,
    })
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
    mut entry: Option<Entry>,
) -> Result<Response, Problem>
where
    T: Shows,
    E: HasKind + 'static,
{
    let (client, _watch) = Client::new(None);
    let outcome = spawn_blocking(move || {
        entry.iter_mut().for_each(Entry::read_body);
        let outcome = outcome(&*serve, request, &query, &client);
        if let Some(entry) = entry {
            entry.ended(&outcome);
        }
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
fn follow_it<T, E>(
    request: Request,
    serve: Arc<impl Serve<T, E>>,
    work: Work,
    mut entry: Option<Entry>,
) -> Response
where
    T: Shows,
    E: HasKind + 'static,
{
    let (send, updates) = mpsc::unbounded_channel();
    let (client, watch) = Client::new(Some(send.clone()));
    spawn_blocking(move || {
        entry.iter_mut().for_each(Entry::read_body);
        let outcome = outcome(&*serve, request, &Query::default(), &client);
        if let Some(entry) = entry {
            entry.ended(&outcome);
        }
        let last = match outcome {
            Ok(text) => Update::Done(text),
            Err(problem) => Update::Failed(problem),
        };
        // One that does not hear it has gone.
        let _ = send.send(last);
        drop(work);
    });
    events(updates, watch)
}

/// Tells what happens, until the client goes, has to come again or the target ends.
fn stream_it<T, E>(
    request: Request,
    serve: Arc<impl Serve<T, E>>,
    (work, permit): (Work, OwnedSemaphorePermit),
) -> Response
where
    T: Shows,
    E: HasKind + 'static,
{
    let (send, updates) = mpsc::channel(ON_THE_WAY);
    spawn_blocking(move || {
        let client = Follower { send, work };
        if let Err(problem) = outcome(&*serve, request, &Query::default(), &client) {
            // One that does not hear it has gone.
            let _ = client.send.try_send(Update::Failed(problem));
        }
        drop((client, permit));
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
            (Some(metrics), _) => Text::Metrics(metrics.clone()),
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
struct Follower {
    send: mpsc::Sender<Update>,
    work: Work,
}

impl Asker for Follower {
    /// Who gets in was read anew: perhaps this one does not any more.
    fn is_gone(&self) -> bool {
        self.send.is_closed() || self.work.is_outdated()
    }

    fn tell(&self, _: Progress) {}

    fn send(&self, event: Option<EventView>) -> bool {
        let mut update = event.map_or(Update::Beat, Update::Happened);
        for _ in 0..TRIES {
            if self.is_gone() {
                return false;
            }
            match self.send.try_send(update) {
                Ok(()) => return true,
                Err(TrySendError::Closed(_)) => return false,
                Err(TrySendError::Full(back)) => update = back,
            }
            thread::sleep(NEXT_TRY);
        }
        false
    }
}
