//! The OpenAPI document, built from the route table.

use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};
use trilogue_domain::Code;
use trilogue_wire::native::{Event, Gap, Problem};

use crate::http::problem;
use crate::routes::{Access, Answer, Content, Parameter, Route};

/// What can go wrong on every route that needs a caller.
const EVERYWHERE: &[Code] = &[
    Code::InvalidRequest,
    Code::Unauthenticated,
    Code::Forbidden,
    Code::HostNotAllowed,
    Code::OriginNotAllowed,
    Code::BodyTooLarge,
    Code::Overloaded,
    Code::ShuttingDown,
    Code::StoreReadOnly,
    Code::DiskFull,
    Code::Internal,
];

/// How a face says that a request failed.
pub(crate) struct Failures {
    /// The schema of the body.
    pub(crate) schema: schemars::Schema,
    /// The body's content type.
    pub(crate) kind: &'static str,
    pub(crate) status: fn(Code) -> u16,
    /// What the body calls it.
    pub(crate) code: fn(Code) -> &'static str,
}

/// Makes schemas that stand among a document's components.
pub(crate) fn generator() -> SchemaGenerator {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    settings.into_generator()
}

/// The document, pretty-printed, with a line break at its end.
pub(crate) fn document(routes: &[Route]) -> String {
    let mut generator = generator();
    let failures = Failures {
        schema: generator.subschema_for::<Problem>(),
        kind: "application/problem+json",
        status: |code| problem::status(code).as_u16(),
        code: Code::as_str,
    };
    // What streams carry is named by no response of its own.
    let _streams = (generator.subschema_for::<Event>(), generator.subschema_for::<Gap>());
    let paths = paths(routes, &mut generator, &failures);
    let schemas = generator.take_definitions(true);
    let document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Trilogue",
            "version": "v1",
            "description": "Our own face: agents, threads, runs, interrupts and events of one durable log. Errors are `application/problem+json`; programs branch on `code`.",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "security": [{ "bearer": [] }, { "key": [] }],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "bearer": { "type": "http", "scheme": "bearer" },
                "key": { "type": "apiKey", "in": "header", "name": "x-api-key" },
            },
        },
    });
    let mut text = serde_json::to_string_pretty(&document).unwrap_or_default();
    text.push('\n');
    text
}

/// The operations of a route table, by path and method.
pub(crate) fn paths(
    routes: &[Route],
    generator: &mut SchemaGenerator,
    failures: &Failures,
) -> Map<String, Value> {
    let mut paths: Map<String, Value> = Map::new();
    for route in routes {
        let item = paths.entry(route.path).or_insert_with(|| json!({}));
        if let Value::Object(item) = item {
            let verb = route.verb.as_str().to_ascii_lowercase();
            item.insert(verb, operation(route, generator, failures));
        }
    }
    paths
}

fn operation(route: &Route, generator: &mut SchemaGenerator, failures: &Failures) -> Value {
    let mut parameters: Vec<Value> = route
        .parameters()
        .map(|name| {
            json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } })
        })
        .collect();
    parameters.extend(route.query.iter().map(|parameter| named(parameter, "query")));
    parameters.extend(route.headers.iter().map(|parameter| named(parameter, "header")));
    let mut operation = json!({
        "operationId": route.operation,
        "summary": route.summary,
        "responses": responses(route, generator, failures),
    });
    if !parameters.is_empty() {
        operation["parameters"] = Value::Array(parameters);
    }
    if let Some(request) = route.request {
        operation["requestBody"] = json!({
            "required": true,
            "content": { "application/json": { "schema": request(generator) } },
        });
    }
    match route.access {
        Access::Public => operation["security"] = json!([]),
        Access::Right(right) | Access::Agent(right) => {
            operation["x-right"] = json!(right.as_str());
        }
    }
    operation
}

fn named(parameter: &Parameter, place: &str) -> Value {
    json!({
        "name": parameter.name,
        "in": place,
        "description": parameter.about,
        "schema": { "type": "string" },
    })
}

fn responses(
    route: &Route,
    generator: &mut SchemaGenerator,
    said: &Failures,
) -> Map<String, Value> {
    let mut responses: Map<String, Value> = Map::new();
    for Answer { status, about, content } in route.answers {
        let response = responses.entry(status.to_string()).or_insert_with(|| json!({}));
        let about = match response["description"].as_str() {
            Some(before) => format!("{before} {about}"),
            None => (*about).to_owned(),
        };
        response["description"] = json!(about);
        match content {
            Content::Nothing => {}
            Content::Json(schema) => {
                response["content"]["application/json"]["schema"] = json!(schema(generator));
            }
            Content::Other(kind) => response["content"][*kind] = json!({}),
        }
    }
    let everywhere: &[Code] = if route.access == Access::Public { &[] } else { EVERYWHERE };
    let mut failures: Vec<(u16, &str)> = Vec::new();
    for code in everywhere.iter().chain(route.errors) {
        failures.push(((said.status)(*code), (said.code)(*code)));
    }
    failures.sort_unstable();
    failures.dedup();
    for (status, code) in failures {
        let response = responses.entry(status.to_string()).or_insert_with(|| json!({}));
        let about = match response["description"].as_str() {
            Some(before) => format!("{before}, `{code}`"),
            None => format!("`{code}`"),
        };
        response["description"] = json!(about);
        response["content"][said.kind]["schema"] = json!(said.schema);
    }
    responses
}
