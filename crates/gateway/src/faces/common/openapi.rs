//! OpenAPI documents, built from route tables.

use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};
use trilogue_domain::Code;

use crate::route::{Access, Parameter, ResponseContent, Route, RouteResponse};

/// The errors of every route that needs a caller.
const EVERYWHERE: &[Code] = &[
    Code::InvalidRequest,
    Code::Unauthenticated,
    Code::Forbidden,
    Code::HostNotAllowed,
    Code::OriginNotAllowed,
    Code::BodyTooLarge,
    Code::JsonTooComplex,
    Code::Overloaded,
    Code::ShuttingDown,
    Code::StoreReadOnly,
    Code::DiskFull,
    Code::Internal,
];

/// The form of a face's errors.
pub(in crate::faces) struct Failures {
    pub(in crate::faces) schema: schemars::Schema,
    pub(in crate::faces) kind: &'static str,
    pub(in crate::faces) status: fn(Code) -> u16,
    /// The name of an error's code in the body.
    pub(in crate::faces) code: fn(Code) -> &'static str,
}

/// Creates a generator of schemas for a document's components.
pub(in crate::faces) fn generator() -> SchemaGenerator {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    settings.into_generator()
}

pub(in crate::faces) fn paths<S>(
    routes: &[Route<S>],
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

fn operation<S>(route: &Route<S>, generator: &mut SchemaGenerator, failures: &Failures) -> Value {
    let mut parameters: Vec<Value> = route
        .parameters()
        .map(|name| {
            json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } })
        })
        .collect();
    parameters.extend(route.query.iter().map(|parameter| parameter_object(parameter, "query")));
    parameters.extend(route.headers.iter().map(|parameter| parameter_object(parameter, "header")));
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
        Access::Open | Access::Public => operation["security"] = json!([]),
        Access::Right(right) | Access::Agent(right) => {
            operation["x-right"] = json!(right.as_str());
        }
    }
    operation
}

fn parameter_object(parameter: &Parameter, place: &str) -> Value {
    json!({
        "name": parameter.name,
        "in": place,
        "description": parameter.about,
        "schema": { "type": "string" },
    })
}

fn responses<S>(
    route: &Route<S>,
    generator: &mut SchemaGenerator,
    how: &Failures,
) -> Map<String, Value> {
    let mut responses: Map<String, Value> = Map::new();
    for RouteResponse { status, about, content } in route.answers {
        let response = responses.entry(status.to_string()).or_insert_with(|| json!({}));
        let about = match response["description"].as_str() {
            Some(before) => format!("{before} {about}"),
            None => (*about).to_owned(),
        };
        response["description"] = json!(about);
        match content {
            ResponseContent::Nothing => {}
            ResponseContent::Json(schema) => {
                response["content"]["application/json"]["schema"] = json!(schema(generator));
            }
            ResponseContent::Other(kind) => response["content"][*kind] = json!({}),
        }
    }
    let everywhere: &[Code] = match route.access {
        Access::Open | Access::Public => &[],
        Access::Right(_) | Access::Agent(_) => EVERYWHERE,
    };
    let mut failures: Vec<(u16, &str)> = Vec::new();
    for code in everywhere.iter().chain(route.errors) {
        failures.push(((how.status)(*code), (how.code)(*code)));
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
        response["content"][how.kind]["schema"] = json!(how.schema);
    }
    responses
}
