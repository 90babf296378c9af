//! The OpenAPI document as a page for people: every operation with its role, keys, body and answer,
//! and every type. It asks nothing of any other host and has no scripts.

use std::fmt::Write;

use serde_json::Value;

/// How the page looks.
pub(super) const STYLE: &str = include_str!("page.css");

/// Where a type of an answer is described in the document.
const TYPES: &str = "#/components/schemas/";

/// The page of a document.
pub(super) fn page(document: &Value) -> String {
    let mut html = String::from(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>Flashyard API</title>\
         <link rel=\"stylesheet\" href=\"reference.css\"></head><body><main>",
    );
    let info = &document["info"];
    let (title, version) = (text(&info["title"]), text(&info["version"]));
    let about = text(&info["description"]);
    add(
        &mut html,
        format_args!("<h1>{title} API {version}</h1><p>{about}</p>"),
    );
    html.push_str("<p><a href=\"openapi.json\">OpenAPI document</a></p><h2>Operations</h2>");
    for (path, methods) in members(&document["paths"]) {
        for (method, operation) in members(methods) {
            add_operation(&mut html, path, method, operation);
        }
    }
    html.push_str("<h2>Types</h2>");
    for (name, schema) in members(&document["components"]["schemas"]) {
        let name = escaped(name);
        add(
            &mut html,
            format_args!("<section id=\"{name}\"><h3>{name}</h3>"),
        );
        add_form(&mut html, schema);
        html.push_str("</section>");
    }
    html.push_str("</main></body></html>\n");
    html
}

fn add_operation(html: &mut String, path: &str, method: &str, operation: &Value) {
    let (id, summary) = (text(&operation["operationId"]), text(&operation["summary"]));
    let (path, method) = (escaped(path), method.to_ascii_uppercase());
    add(
        html,
        format_args!(
            "<section id=\"{id}\"><h3><code>{method} {path}</code></h3><p>{summary} Role: {}.</p>",
            text(&operation["x-role"])
        ),
    );
    let keys = operation["parameters"].as_array().into_iter().flatten();
    let keys: Vec<_> = keys.filter(|key| key["in"] == "query").collect();
    if !keys.is_empty() {
        html.push_str("<h4>Query</h4><table>");
        for key in keys {
            let (name, about) = (text(&key["name"]), text(&key["description"]));
            let kind = kind(&key["schema"]);
            add(
                html,
                format_args!(
                    "<tr><td><code>{name}</code></td><td>{kind}</td><td>{about}</td></tr>"
                ),
            );
        }
        html.push_str("</table>");
    }
    let body = &operation["requestBody"]["content"]["application/json"]["schema"];
    if !body.is_null() {
        html.push_str("<h4>Body</h4>");
        add_form(html, body);
    }
    for (_, content) in members(&operation["responses"]["200"]["content"]) {
        add(
            html,
            format_args!("<h4>Answer</h4><p>{}</p>", kind(&content["schema"])),
        );
    }
    html.push_str("</section>");
}

/// What a value consists of.
fn add_form(html: &mut String, schema: &Value) {
    if let Some(about) = schema["description"].as_str() {
        add(html, format_args!("<p>{}</p>", escaped(about)));
    }
    let inner = match schema["type"] == "array" {
        true => &schema["items"],
        false => schema,
    };
    let keys = members(&inner["properties"]);
    if keys.is_empty() {
        add(html, format_args!("<p>{}</p>", kind(schema)));
        return;
    }
    let required = inner["required"].as_array();
    let is_required = |name: &str| required.is_some_and(|all| all.iter().any(|one| one == name));
    html.push_str("<table>");
    for (name, key) in keys {
        let always = if is_required(name) { "" } else { "optional" };
        let (name, about) = (escaped(name), text(&key["description"]));
        let kind = kind(key);
        add(
            html,
            format_args!(
                "<tr><td><code>{name}</code></td><td>{kind}</td><td>{always}</td><td>{about}</td></tr>"
            ),
        );
    }
    html.push_str("</table>");
}

/// The type of a value in a few words.
fn kind(schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str() {
        let name = escaped(name.strip_prefix(TYPES).unwrap_or(name));
        return format!("<a href=\"#{name}\">{name}</a>");
    }
    let mut several = ["anyOf", "oneOf", "allOf"].into_iter();
    let several = several.find_map(|key| schema[key].as_array());
    if let Some(several) = several {
        return joined(several.iter().map(kind), " or ");
    }
    if let Some(value) = schema.get("const") {
        return format!("<code>{}</code>", escaped(&value.to_string()));
    }
    if let Some(values) = schema["enum"].as_array() {
        let values = values.iter();
        return joined(
            values.map(|it| format!("<code>{}</code>", escaped(&it.to_string()))),
            " or ",
        );
    }
    match &schema["type"] {
        Value::String(name) if name == "array" => format!("list of {}", kind(&schema["items"])),
        Value::String(name) if name == "object" => {
            let keys = members(&schema["properties"]);
            match keys.is_empty() {
                true => "object".to_owned(),
                false => format!(
                    "object: {}",
                    joined(keys.into_iter().map(|(key, _)| escaped(key)), ", ")
                ),
            }
        }
        Value::String(name) => escaped(name),
        Value::Array(names) => joined(names.iter().map(text), " or "),
        _ => "anything".to_owned(),
    }
}

fn joined(all: impl Iterator<Item = String>, between: &str) -> String {
    all.collect::<Vec<_>>().join(between)
}

fn members(value: &Value) -> Vec<(&str, &Value)> {
    let keys = value.as_object().into_iter().flatten();
    keys.map(|(name, value)| (name.as_str(), value)).collect()
}

/// A text of the document, as it stands in a page; nothing where there is none.
fn text(value: &Value) -> String {
    escaped(value.as_str().unwrap_or_default())
}

fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;")
}

fn add(html: &mut String, more: std::fmt::Arguments<'_>) {
    html.write_fmt(more).expect("memory takes it");
}

#[cfg(test)]
mod tests {
    use super::super::openapi::document;
    use super::super::operations::OPERATIONS;
    use super::*;

    #[test]
    fn every_operation_and_type_has_its_place() {
        let document = document();
        let html = page(&document);
        for operation in OPERATIONS {
            let title = format!("<code>{} {}</code>", operation.method, operation.path);
            assert!(html.contains(&title), "{title}");
        }
        for part in html.split("href=\"#").skip(1) {
            let name = part.split('"').next().expect("a part");
            assert!(
                html.contains(&format!("id=\"{name}\"")),
                "nothing is at #{name}"
            );
        }
        assert!(!html.contains("http://") && !html.contains("<script"));
    }

    #[test]
    fn what_a_type_says_cannot_end_a_tag() {
        assert_eq!(
            escaped("<a href=\"&\">"),
            "&lt;a href=&quot;&amp;&quot;&gt;"
        );
    }
}
