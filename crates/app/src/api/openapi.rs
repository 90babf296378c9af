//! The OpenAPI 3.1 document of the API, made of its operations and of the types that they read and
//! answer. `docs/openapi.json` is what it makes; a running target serves the same.

use schemars::generate::{SchemaGenerator, SchemaSettings};
use serde_json::{Map, Value, json};

use super::answer::Problem;
use super::operations::{OPERATIONS, Operation};
use super::parts::Query;
use super::serve::PREFIX;
use super::tokens::Role;

const ABOUT: &str = "What can be asked of a running target, at the Unix socket `api.sock` of its \
                     state directory without a token, and over TCP with a token or, where there is TLS, the certificate of a \
                     client. `x-role` is what either needs. docs/api.md has the rest.";

/// The document.
pub(super) fn document() -> Value {
    let mut answers = generator(SchemaSettings::draft2020_12().for_serialize());
    // A body stands where it is used: what may be sent and what is answered differ, under one name.
    let inline = SchemaSettings::draft2020_12().for_deserialize();
    let mut bodies = generator(inline.with(|it| it.inline_subschemas = true));
    let query = bodies.subschema_for::<Query>().to_value();
    let problem = answers.subschema_for::<Problem>().to_value();
    let mut paths = Map::new();
    for operation in OPERATIONS {
        let path = paths.entry(operation.path).or_insert_with(|| json!({}));
        let method = operation.method.as_str().to_ascii_lowercase();
        path[method] = json!({
            "operationId": id(operation),
            "tags": [part(operation)],
            "summary": operation.about,
            "x-role": Role::of(operation).name(),
            "parameters": parameters(operation, &query),
            "responses": {
                "200": { "description": "It was done.", "content": content(operation, &mut answers) },
                "default": {
                    "description": "It was not done; `code` says who has to act.",
                    "content": { "application/problem+json": { "schema": problem } },
                },
            },
        });
        if operation.query.contains(&"if_missing") {
            let method = operation.method.as_str().to_ascii_lowercase();
            let mut made = path[&method]["responses"]["200"].clone();
            made["description"] =
                json!("With `if_missing`: it was made. 200 says that it was there.");
            path[method]["responses"]["201"] = made;
        }
        if let Some(body) = operation.body {
            let content = json!({ "application/json": { "schema": body(&mut bodies) } });
            path[operation.method.as_str().to_ascii_lowercase()]["requestBody"] =
                json!({ "required": true, "content": content });
        }
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Flashyard",
            "version": env!("CARGO_PKG_VERSION"),
            "description": ABOUT,
        },
        "servers": [{ "url": PREFIX }],
        "security": [{}, { "token": [] }, { "certificate": [] }],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "token": { "type": "http", "scheme": "bearer", "description": "A token of `serve --api-tokens`." },
                "certificate": { "type": "mutualTLS", "description": "A certificate that an authority of \
                    `serve --api-client-ca` has signed, and that a line of `--api-tokens` names." },
            },
            "schemas": answers.take_definitions(true),
        },
    })
}

fn generator(settings: SchemaSettings) -> SchemaGenerator {
    let settings = settings.with(|it| {
        it.definitions_path = "/components/schemas".into();
        it.meta_schema = None;
    });
    settings.into_generator()
}

/// What an operation is about: the first part of its path.
pub(super) fn part(operation: &Operation) -> &'static str {
    operation.path.split('/').nth(1).unwrap_or_default()
}

/// A name for functions of clients that are made of the document.
fn id(operation: &Operation) -> String {
    let path = operation.path.replace(['{', '}'], "").replace('/', "_");
    operation.method.as_str().to_ascii_lowercase() + &path
}

/// Names in the path, and keys of the query.
fn parameters(operation: &Operation, query: &Value) -> Vec<Value> {
    let names = operation
        .path
        .split('/')
        .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let names = names.map(|name| {
        let schema = json!({ "type": "string", "minLength": 1 });
        json!({ "name": name, "in": "path", "required": true, "schema": schema })
    });
    let keys = operation.query.iter().map(|key| {
        let schema = &query["properties"][key];
        json!({ "name": key, "in": "query", "schema": schema, "description": schema["description"] })
    });
    names.chain(keys).collect()
}

fn content(operation: &Operation, answers: &mut SchemaGenerator) -> Value {
    match operation.path {
        "/metrics" => json!({
            "application/openmetrics-text": { "schema": { "type": "string" } },
            "application/vnd.google.protobuf": { "schema": { "type": "string", "format": "binary" } },
        }),
        _ => json!({ "application/json": { "schema": (operation.answer)(answers) } }),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn page_of_operations_is_as_committed() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
        let made = serde_json::to_string_pretty(&document()).expect("plain data") + "\n";
        if std::env::var_os("FLASHYARD_WRITE_DOCS").is_some() {
            fs::write(&file, &made).expect("the page can be written");
        }
        let committed = fs::read_to_string(&file).unwrap_or_default();
        assert!(
            committed == made,
            "docs/openapi.json is old: run `make docs`"
        );
    }

    /// Whatever is referred to is there, and whatever may be asked is described.
    #[test]
    fn references_lead_somewhere() {
        let document = document();
        let mut found = 0;
        let mut open = vec![&document];
        while let Some(value) = open.pop() {
            match value {
                Value::Object(keys) => open.extend(keys.values()),
                Value::Array(all) => open.extend(all),
                Value::String(text) if text.starts_with("#/") => {
                    found += 1;
                    assert!(
                        document.pointer(&text[1..]).is_some(),
                        "{text} leads nowhere"
                    );
                }
                _ => {}
            }
        }
        assert!(found > 100, "only {found} references");
        let schemas = document["components"]["schemas"].as_object();
        let schemas = schemas.expect("there are answers");
        assert!(schemas.len() > 40, "only {} schemas", schemas.len());
    }
}
