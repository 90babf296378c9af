//! In which form a client takes the figures for Prometheus, by the header `Accept`.

use axum::http::{HeaderMap, header};

use crate::control::MetricsForm;

/// What Prometheus knows OpenMetrics text by.
pub(super) const TEXT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The same of protobuf.
pub(super) const PROTOBUF: &str =
    "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited";

/// Protobuf for whoever names it with the message and the encoding that we have, and takes nothing
/// else rather; text for all others.
pub(super) fn metrics(headers: &HeaderMap) -> MetricsForm {
    let all = headers.get_all(header::ACCEPT).iter();
    let all = all.filter_map(|value| value.to_str().ok());
    let (mut protobuf, mut text) = (0.0_f32, 0.0_f32);
    for accepted in all.flat_map(|value| value.split(',')).map(Accepted::of) {
        if accepted.is_ours() {
            protobuf = protobuf.max(accepted.weight);
        } else if accepted.is("application/openmetrics-text") || accepted.is("text/plain") {
            text = text.max(accepted.weight);
        }
    }
    match protobuf > 0.0 && protobuf >= text {
        true => MetricsForm::Protobuf,
        false => MetricsForm::Text,
    }
}

/// A type that is accepted, with its parameters.
struct Accepted<'a> {
    kind: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
    /// How much it is wanted, 0 to 1: it is not with 0.
    weight: f32,
}

impl<'a> Accepted<'a> {
    fn of(text: &'a str) -> Self {
        let mut parts = text.split(';').map(str::trim);
        let kind = parts.next().unwrap_or_default();
        let parameters = parts.filter_map(|part| part.split_once('='));
        let trimmed =
            |(key, value): (&'a str, &'a str)| (key.trim(), value.trim().trim_matches('"'));
        let parameters: Vec<_> = parameters.map(trimmed).collect();
        let weight = parameters
            .iter()
            .find(|(key, _)| key.eq_ignore_ascii_case("q"));
        let weight = weight.map_or(Some(1.0), |(_, value)| value.parse().ok());
        Self {
            kind,
            parameters,
            weight: weight.unwrap_or(0.0),
        }
    }

    fn is(&self, kind: &str) -> bool {
        self.kind.eq_ignore_ascii_case(kind)
    }

    fn is_ours(&self) -> bool {
        let has = |key: &str, value: &str| {
            let mut all = self.parameters.iter();
            all.any(|(one, is)| one.eq_ignore_ascii_case(key) && *is == value)
        };
        self.is("application/vnd.google.protobuf")
            && has("proto", "io.prometheus.client.MetricFamily")
            && has("encoding", "delimited")
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn form(accept: &[&'static str]) -> MetricsForm {
        let mut headers = HeaderMap::new();
        for value in accept {
            headers.append(header::ACCEPT, HeaderValue::from_static(value));
        }
        metrics(&headers)
    }

    #[test]
    fn protobuf_is_for_who_wants_it_most() {
        let ours = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited";
        // What Prometheus 2.42 sends with native histograms.
        let prometheus = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited,\
            application/openmetrics-text;version=1.0.0;q=0.8,application/openmetrics-text;version=0.0.1;q=0.75,\
            text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        assert_eq!(form(&[prometheus]), MetricsForm::Protobuf);
        assert_eq!(form(&[ours]), MetricsForm::Protobuf);
        assert_eq!(form(&["text/plain;q=0.5", ours]), MetricsForm::Protobuf);
        assert_eq!(form(&[PROTOBUF]), MetricsForm::Protobuf);
    }

    #[test]
    fn everybody_else_gets_text() {
        for accept in [
            "",
            "*/*",
            "application/json",
            "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            // Of another message or encoding, or not wanted, or less than text.
            "application/vnd.google.protobuf",
            "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=text",
            "application/vnd.google.protobuf;proto=other;encoding=delimited",
            "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0",
            "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=x",
            "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.5,text/plain;q=0.8",
        ] {
            assert_eq!(form(&[accept]), MetricsForm::Text, "{accept}");
        }
        assert_eq!(form(&[]), MetricsForm::Text);
    }
}
