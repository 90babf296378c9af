//! The client's side of the API, for the command line.

use std::error::Error as _;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue, LINK};
use hyper::{Method, Request as HttpRequest, Response};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio::runtime::Builder;
use tokio::time::timeout;

use super::accept;
use super::answer::{Problem, text};
use super::call::Call;
use super::parts::query_of_link;
use super::place::Place;
use super::serve::{BODY_BYTES_MAX, PREFIX, SOCKET};
use crate::control::{ErrorKind, EventView, EventsAsk, HasKind, Progress, Request};

/// How often somebody who waits for events looks after something else.
const LOOK: Duration = Duration::from_millis(200);

/// Why a target that was asked gave nothing.
#[derive(Debug)]
pub enum AskError {
    /// None runs on this state directory.
    NoTarget(PathBuf),
    /// Its socket, or this address, cannot be used.
    Unreachable(String, io::Error),
    /// No TLS comes about with it there.
    Tls(String, String),
    /// The request is longer than any may be.
    TooLong,
    /// It went away before it had answered.
    Lost(io::Error),
    /// It says why it did not do it.
    Refused(Problem),
    /// What it says is no answer.
    NotUnderstood(serde_json::Error),
}

impl fmt::Display for AskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoTarget(state) => write!(
                f,
                "no target runs on {}: start one with `flashyard serve`, or give --state",
                state.display()
            ),
            Self::Unreachable(at, error) => {
                write!(f, "cannot reach the target at {at}: {error}")
            }
            Self::Tls(at, why) => write!(
                f,
                "no TLS with {at}: {why}; give --api-ca with who has signed its certificate, and the name that is in that"
            ),
            Self::TooLong => write!(
                f,
                "a request has at most {} MiB, and nothing was done: apply the file in parts",
                BODY_BYTES_MAX >> 20
            ),
            Self::Lost(error) => write!(
                f,
                "the target went away in the middle: {error}; ask again with `list`"
            ),
            Self::Refused(why) => f.write_str(&why.detail),
            Self::NotUnderstood(error) => write!(
                f,
                "the target's answer is not understood ({error}): is it another version?"
            ),
        }
    }
}

impl std::error::Error for AskError {}

impl HasKind for AskError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Refused(why) => why.code,
            Self::TooLong => ErrorKind::Invalid,
            Self::NoTarget(_)
            | Self::Unreachable(..)
            | Self::Tls(..)
            | Self::Lost(_)
            | Self::NotUnderstood(_) => ErrorKind::Unavailable,
        }
    }
}

/// Asks the target that is at `place`.
pub fn ask<T: DeserializeOwned>(place: &Place, request: &Request) -> Result<T, AskError> {
    ask_and_follow(place, request, |_| {})
}

/// The same, and says how far the target is, if the request asks for that.
pub fn ask_and_follow<T: DeserializeOwned>(
    place: &Place,
    request: &Request,
    follow: impl FnMut(Progress),
) -> Result<T, AskError> {
    let call = Call::of(request);
    if call.body.len() > BODY_BYTES_MAX {
        return Err(AskError::TooLong);
    }
    let runtime = Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build();
    let runtime = runtime.map_err(AskError::Lost)?;
    let text = runtime.block_on(async {
        match call.method {
            Method::GET => all_parts(place, call).await,
            _ => exchange(place, call, follow).await,
        }
    })?;
    serde_json::from_slice(&text).map_err(AskError::NotUnderstood)
}

/// Asks for something, and, of a list that comes in parts, for all of them.
async fn all_parts(place: &Place, call: Call) -> Result<Vec<u8>, AskError> {
    let path = call.target.split('?').next().unwrap_or_default().to_owned();
    let mut rows: Vec<Value> = Vec::new();
    let mut answer = send(place, call).await?;
    loop {
        let next = answer.headers().get(LINK).and_then(query_of_link);
        let next = next.map(|query| Call::get(format!("{path}?{query}")));
        let view = whole(answer).await?;
        if next.is_none() && rows.is_empty() {
            return Ok(view);
        }
        rows.append(&mut read(&view)?);
        match next {
            Some(next) => answer = send(place, next).await?,
            None => return Ok(text(&rows).into_bytes()),
        }
    }
}

/// Sends a call, and gives the view that comes back, as JSON.
async fn exchange(
    place: &Place,
    call: Call,
    follow: impl FnMut(Progress),
) -> Result<Vec<u8>, AskError> {
    let followed = call.follow;
    let answer = send(place, call).await?;
    if followed {
        return followed_to_the_end(answer, follow).await;
    }
    whole(answer).await
}

/// The view that an answer is, as JSON.
async fn whole(answer: Response<Incoming>) -> Result<Vec<u8>, AskError> {
    let kind = answer.headers().get(CONTENT_TYPE);
    let is_text = kind.is_some_and(|kind| kind == accept::TEXT);
    let body = answer.into_body().collect().await.map_err(lost)?.to_bytes();
    Ok(match is_text {
        true => text(&String::from_utf8_lossy(&body)).into_bytes(),
        false => body.into(),
    })
}

/// Sends a call; gives the answer where that is no refusal.
async fn send(place: &Place, call: Call) -> Result<Response<Incoming>, AskError> {
    let answer = match place {
        Place::State(state) => {
            let request = request(call, "localhost", None);
            over(unix(state).await?, request).await?
        }
        Place::Remote(remote) => {
            let request = request(call, remote.at(), remote.token());
            over(remote.connect().await?, request).await?
        }
    };
    if !answer.status().is_success() {
        let body = answer.into_body().collect().await.map_err(lost)?.to_bytes();
        let problem = serde_json::from_slice(&body).map_err(AskError::NotUnderstood)?;
        return Err(AskError::Refused(problem));
    }
    Ok(answer)
}

async fn unix(state: &Path) -> Result<UnixStream, AskError> {
    let path = state.join(SOCKET);
    let stream = UnixStream::connect(&path).await;
    stream.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            AskError::NoTarget(state.to_owned())
        }
        _ => AskError::Unreachable(path.display().to_string(), error),
    })
}

async fn over(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    request: HttpRequest<Full<Bytes>>,
) -> Result<Response<Incoming>, AskError> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(lost)?;
    tokio::spawn(connection);
    sender.send_request(request).await.map_err(lost)
}

fn request(call: Call, host: &str, token: Option<&HeaderValue>) -> HttpRequest<Full<Bytes>> {
    let accept = match call.follow {
        true => "text/event-stream",
        false => "application/json",
    };
    let mut request = HttpRequest::builder()
        .method(call.method)
        .uri(format!("{PREFIX}{}", call.target))
        .header(HOST, host)
        .header(ACCEPT, accept);
    if let Some(token) = token {
        request = request.header(AUTHORIZATION, token);
    }
    if !call.body.is_empty() {
        request = request.header(CONTENT_TYPE, "application/json");
    }
    let request = request.body(Full::from(call.body));
    request.expect("names are encoded")
}

/// With the reason below it, such as what TLS says.
fn lost(error: hyper::Error) -> AskError {
    let text = match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    };
    AskError::Lost(io::Error::other(text))
}

/// Gives each event that happens at a target, in its order, to `take`, and now and then nothing,
/// until that wants no more. The target ends it by going away.
pub fn follow(
    place: &Place,
    after: Option<String>,
    take: impl FnMut(Option<EventView>) -> bool,
) -> Result<(), AskError> {
    let call = Call::of(&Request::Events(EventsAsk {
        after,
        follow: true,
    }));
    let runtime = Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build();
    let runtime = runtime.map_err(AskError::Lost)?;
    runtime.block_on(async {
        let answer = send(place, call).await?;
        events(answer, take).await
    })
}

async fn events(
    answer: Response<Incoming>,
    mut take: impl FnMut(Option<EventView>) -> bool,
) -> Result<(), AskError> {
    let mut body = answer.into_body();
    let mut come = Vec::new();
    loop {
        let frame = match timeout(LOOK, body.frame()).await {
            Err(_) if take(None) => continue,
            Err(_) => return Ok(()),
            Ok(frame) => frame,
        };
        let Some(frame) = frame else {
            return Err(AskError::Lost(io::ErrorKind::UnexpectedEof.into()));
        };
        if let Ok(data) = frame.map_err(lost)?.into_data() {
            come.extend_from_slice(&data);
        }
        while let Some(end) = come.windows(2).position(|two| two == b"\n\n") {
            let event: Vec<u8> = come.drain(..end + 2).collect();
            match event_of(&event) {
                (name, data) if name == b"event" && !take(Some(read(&data)?)) => {
                    return Ok(());
                }
                (name, data) if name == b"failed" => {
                    return Err(AskError::Refused(read(&data)?));
                }
                _ => {}
            }
        }
    }
}

/// Reads server-sent events up to the one with the outcome.
async fn followed_to_the_end(
    answer: Response<Incoming>,
    mut follow: impl FnMut(Progress),
) -> Result<Vec<u8>, AskError> {
    let mut body = answer.into_body();
    let mut come = Vec::new();
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame.map_err(lost)?.into_data() {
            come.extend_from_slice(&data);
        }
        while let Some(end) = come.windows(2).position(|two| two == b"\n\n") {
            let event: Vec<u8> = come.drain(..end + 2).collect();
            let (name, data) = event_of(&event);
            match name.as_slice() {
                b"done" => return Ok(data),
                b"failed" => return Err(AskError::Refused(read(&data)?)),
                _ => follow(read(&data)?),
            }
        }
    }
    Err(AskError::Lost(io::ErrorKind::UnexpectedEof.into()))
}

fn read<T: DeserializeOwned>(data: &[u8]) -> Result<T, AskError> {
    serde_json::from_slice(data).map_err(AskError::NotUnderstood)
}

/// Name and data of a server-sent event.
fn event_of(text: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let field = |name: &[u8]| {
        let lines = text.split(|byte| *byte == b'\n');
        let mut values = lines.filter_map(|line| line.strip_prefix(name));
        values.next().unwrap_or_default().trim_ascii().to_vec()
    };
    (field(b"event:"), field(b"data:"))
}
