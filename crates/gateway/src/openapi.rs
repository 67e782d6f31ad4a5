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

/// The document, pretty-printed, with a line break at its end.
pub(crate) fn document(routes: &[Route]) -> String {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    let mut generator = settings.into_generator();
    let problem = generator.subschema_for::<Problem>();
    // What streams carry is named by no response of its own.
    let _streams = (generator.subschema_for::<Event>(), generator.subschema_for::<Gap>());
    let mut paths: Map<String, Value> = Map::new();
    for route in routes {
        let item = paths.entry(route.path).or_insert_with(|| json!({}));
        if let Value::Object(item) = item {
            let verb = route.verb.as_str().to_ascii_lowercase();
            item.insert(verb, operation(route, &mut generator, &problem));
        }
    }
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

fn operation(route: &Route, generator: &mut SchemaGenerator, problem: &schemars::Schema) -> Value {
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
        "responses": responses(route, generator, problem),
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
        Access::Right(right) => operation["x-right"] = json!(right.as_str()),
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
    problem: &schemars::Schema,
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
        failures.push((problem::status(*code).as_u16(), code.as_str()));
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
        response["content"]["application/problem+json"]["schema"] = json!(problem);
    }
    responses
}
