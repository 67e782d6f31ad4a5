//! The OpenAPI document of `/api/v1`.

use serde_json::json;
use trilogue_domain::Code;
use trilogue_wire::native::{Event, Gap, ListChange, Problem};

use super::routes;
use crate::faces::common::openapi::{self, Failures};
use crate::http::problem;

/// Returns the OpenAPI document of `/api/v1` as the server shows it: pretty-printed, with a line break at its end.
pub fn openapi_document() -> String {
    let mut generator = openapi::generator();
    let failures = Failures {
        schema: generator.subschema_for::<Problem>(),
        kind: "application/problem+json",
        status: |code| problem::status(code).as_u16(),
        code: Code::as_str,
    };
    // No response names the schemas of streams, so add them here.
    let _streams = (
        generator.subschema_for::<Event>(),
        generator.subschema_for::<Gap>(),
        generator.subschema_for::<ListChange>(),
    );
    let paths = openapi::paths(&routes(), &mut generator, &failures);
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
