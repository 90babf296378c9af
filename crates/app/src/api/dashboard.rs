//! The dashboard: a page for browsers with its style and its modules, which are in the program. It
//! is served without a token, for it holds nothing of this target; what it shows it asks of the
//! operations, with the token that its user has typed.

use std::hash::{DefaultHasher, Hash, Hasher};

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use axum::response::Response as Answered;
use axum::routing::get;

const HTML: &str = "text/html; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const MODULE: &str = "text/javascript; charset=utf-8";
const PICTURE: &str = "image/svg+xml";

/// Nothing comes from anywhere else, and nothing runs that is no file of it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// What is said of every file of it.
const HEADERS: [(header::HeaderName, &str); 4] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    // It may be kept, and is asked for again: another version of the program has other files.
    (header::CACHE_CONTROL, "no-cache"),
];

/// A file of it.
#[derive(Clone, Copy)]
pub(super) struct Asset {
    pub(super) path: &'static str,
    kind: &'static str,
    pub(super) text: &'static str,
}

/// Files by the path that they are served at.
macro_rules! assets {
    ($($kind:ident $path:literal $file:literal;)*) => {
        /// All files of it.
        pub(super) const ASSETS: &[Asset] = &[$(Asset {
            path: $path,
            kind: $kind,
            text: include_str!(concat!("../../dashboard/", $file)),
        },)*];
    };
}

assets! {
    HTML "/" "index.html";
    STYLE "/dashboard/style.css" "style.css";
    PICTURE "/dashboard/icon.svg" "icon.svg";
    MODULE "/dashboard/main.js" "main.js";
    MODULE "/dashboard/address.js" "address.js";
    MODULE "/dashboard/api.js" "api.js";
    MODULE "/dashboard/blame.js" "blame.js";
    MODULE "/dashboard/chart.js" "chart.js";
    MODULE "/dashboard/command.js" "command.js";
    MODULE "/dashboard/dom.js" "dom.js";
    MODULE "/dashboard/history.js" "history.js";
    MODULE "/dashboard/parts.js" "parts.js";
    MODULE "/dashboard/table.js" "table.js";
    MODULE "/dashboard/token.js" "token.js";
    MODULE "/dashboard/traffic.js" "traffic.js";
    MODULE "/dashboard/units.js" "units.js";
    MODULE "/dashboard/views/device.js" "views/device.js";
    MODULE "/dashboard/views/events.js" "views/events.js";
    MODULE "/dashboard/views/overview.js" "views/overview.js";
    MODULE "/dashboard/views/pool.js" "views/pool.js";
    MODULE "/dashboard/views/tenant.js" "views/tenant.js";
}

/// All files at their paths.
pub(super) fn router() -> Router {
    let mut router = Router::new();
    for asset in ASSETS {
        let tag = asset.tag();
        let answer = move |headers: HeaderMap| async move { asset.answer(&tag, &headers) };
        router = router.route(asset.path, get(answer));
    }
    router
}

impl Asset {
    /// What a browser knows its content by.
    fn tag(&self) -> String {
        let mut hasher = DefaultHasher::new();
        self.text.hash(&mut hasher);
        format!("\"{:016x}\"", hasher.finish())
    }

    /// The file, or that the browser has it.
    fn answer(&self, tag: &str, asked: &HeaderMap) -> Answered {
        let known = asked.get_all(header::IF_NONE_MATCH).into_iter();
        let known = known.filter_map(|value| value.to_str().ok());
        let mut known = known.flat_map(|value| value.split(','));
        let is_known = known.any(|one| one.trim().trim_start_matches("W/") == tag);
        let mut answer = match is_known {
            true => Response::new(Body::empty()),
            false => Response::new(Body::from(self.text)),
        };
        if is_known {
            *answer.status_mut() = StatusCode::NOT_MODIFIED;
        }
        let headers = answer.headers_mut();
        for (name, value) in HEADERS {
            headers.insert(name, HeaderValue::from_static(value));
        }
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(self.kind));
        let tag = HeaderValue::from_str(tag).expect("it is text");
        headers.insert(header::ETAG, tag);
        answer
    }
}
