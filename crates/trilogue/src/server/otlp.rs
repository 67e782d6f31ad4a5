//! The destination of traces: the settings, and the standard variables of OpenTelemetry.

use std::path::Path;

use http::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::percent_decode_str;
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error};
use trilogue_egress::{Client, Policy};
use trilogue_gateway::{TraceCollector, TraceOptions};
use trilogue_wire::otlp::TRACES_PATH;

use crate::config::{Otlp, Ratio, Span};

const INSTANCE: &str = "service.instance.id";
const DEFAULT_SERVICE: &str = "trilogue";
/// The only form that the server sends.
const PROTOCOL: &str = "http/protobuf";
/// Only the number of rejected spans is read of an answer.
const MAX_RESPONSE_BYTES: u64 = 64 * 1024;

/// A collector, and which runs it gets.
#[derive(Debug)]
pub(crate) struct Tracing {
    pub(crate) options: TraceOptions,
    url: String,
    headers: HeaderMap,
    resource: Vec<(String, String)>,
    timeout: Span,
}

/// The environment: the value of a variable that is set and not empty.
type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

// === impl Tracing ===

impl Tracing {
    /// Combines the settings with the environment of this process; returns `None` if traces are off. Errors: `invalid_request` for a
    /// wrong setting, or a header without value.
    pub(crate) fn of(otlp: &Otlp) -> Result<Option<Self>> {
        Self::with(otlp, &|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    }

    fn with(otlp: &Otlp, env: Environment<'_>) -> Result<Option<Self>> {
        let (url, key) = match &otlp.endpoint {
            Some(base) => (of_base(base), "telemetry.otlp.endpoint"),
            None if is_off(env) => return Ok(None),
            None => match (
                env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"),
                env("OTEL_EXPORTER_OTLP_ENDPOINT"),
            ) {
                (Some(whole), _) => (whole, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"),
                (None, Some(base)) => (of_base(&base), "OTEL_EXPORTER_OTLP_ENDPOINT"),
                (None, None) => return Ok(None),
            },
        };
        check_url(&url, key)?;
        if otlp.queue == 0 {
            return Err(wrong("`telemetry.otlp.queue` is 0")
                .hint("leave `telemetry.otlp.endpoint` out for no traces"));
        }
        let ratio = match otlp.sample_ratio {
            Some(ratio) => ratio.to_f64(),
            None => sampler(env)?,
        };
        Ok(Some(Self {
            options: TraceOptions { sample_ratio: ratio, max_queued_runs: otlp.queue },
            url,
            headers: headers(otlp, env)?,
            resource: resource(otlp, env),
            timeout: timeout(otlp, env),
        }))
    }

    /// Marks the spans with the name of the server among those that share the store, unless the environment says which instance this is.
    pub(crate) fn of_node(mut self, name: &str) -> Self {
        if !self.resource.iter().any(|(key, _)| key == INSTANCE) {
            self.resource.push((INSTANCE.to_owned(), name.to_owned()));
        }
        self
    }

    /// The collector. Its address is the operator's, so that it may be anywhere.
    pub(crate) fn collector(self) -> Result<TraceCollector> {
        let options = trilogue_egress::Options {
            connect_timeout: self.timeout.0,
            total_timeout: Some(self.timeout.0),
            max_response_bytes: MAX_RESPONSE_BYTES,
            ..trilogue_egress::Options::default()
        };
        let client = Client::new(Policy::anywhere(), options)
            .map_err(|error| Error::new(Code::Internal, error.to_string()))?;
        Ok(TraceCollector::new(client, self.url, self.headers, self.resource))
    }
}

fn wrong(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(Code::InvalidRequest, message)
}

/// Whether the environment switches traces off, or wants them in a form that the server does not speak.
fn is_off(env: Environment<'_>) -> bool {
    if env("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"))
        || env("OTEL_TRACES_EXPORTER").is_some_and(|value| value == "none")
    {
        return true;
    }
    let protocol =
        env("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL").or_else(|| env("OTEL_EXPORTER_OTLP_PROTOCOL"));
    let other = protocol.filter(|protocol| protocol != PROTOCOL);
    if let Some(protocol) = &other {
        let protocol = protocol.escape_debug().to_string();
        tracing::warn!(protocol, "no traces: the server sends them as {PROTOCOL} only");
    }
    other.is_some()
}

fn of_base(base: &str) -> String {
    format!("{}{TRACES_PATH}", base.trim_end_matches('/'))
}

fn check_url(url: &str, key: &str) -> Result<()> {
    let parsed = url::Url::parse(url).ok();
    let fits = parsed.is_some_and(|url| {
        matches!(url.scheme(), "http" | "https")
            && url.has_host()
            && url.username().is_empty()
            && url.password().is_none()
    });
    // It may hold a password.
    let message = format!("`{key}` is not a web address, or holds a password");
    let error =
        wrong(message).hint("write it such as \"http://127.0.0.1:4318\"; secrets go into headers");
    fits.then_some(()).ok_or(error)
}

/// The sampling ratio of the environment. Every sampler follows the caller's decision.
fn sampler(env: Environment<'_>) -> Result<f64> {
    let Some(name) = env("OTEL_TRACES_SAMPLER") else { return Ok(1.0) };
    match name.strip_prefix("parentbased_").unwrap_or(&name) {
        "always_on" => Ok(1.0),
        "always_off" => Ok(0.0),
        "traceidratio" => {
            let Some(argument) = env("OTEL_TRACES_SAMPLER_ARG") else { return Ok(1.0) };
            let ratio = argument.parse().ok().and_then(Ratio::of);
            let error = wrong("`OTEL_TRACES_SAMPLER_ARG` is not a number from 0 to 1");
            ratio.map(Ratio::to_f64).ok_or(error)
        }
        _ => {
            let name = name.escape_debug();
            Err(wrong(format!("`OTEL_TRACES_SAMPLER` has the unknown sampler '{name}'")).hint(
                "use always_on, always_off or traceidratio, or set `telemetry.otlp.sample_ratio`",
            ))
        }
    }
}

fn headers(otlp: &Otlp, env: Environment<'_>) -> Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    for (name, value) in &otlp.headers {
        put(&mut headers, "telemetry.otlp.headers", name, &value.0)?;
    }
    for (name, variable) in &otlp.header_env {
        let key = "telemetry.otlp.header_env";
        let value = env(variable).ok_or_else(|| {
            let variable = variable.escape_debug();
            wrong(format!("`{key}`: the variable '{variable}' is not set"))
                .hint("set it where the server starts")
        })?;
        put(&mut headers, key, name, &value)?;
    }
    for (name, file) in &otlp.header_files {
        let key = "telemetry.otlp.header_files";
        let value = crate::config::secret_of_file(Path::new(file))
            .map_err(|why| wrong(format!("`{key}`: {why}")))?;
        put(&mut headers, key, name, value.trim())?;
    }
    if headers.is_empty() {
        let listed = env("OTEL_EXPORTER_OTLP_TRACES_HEADERS")
            .or_else(|| env("OTEL_EXPORTER_OTLP_HEADERS"))
            .unwrap_or_default();
        for (name, value) in pairs(&listed) {
            put(&mut headers, "OTEL_EXPORTER_OTLP_HEADERS", &name, &value)?;
        }
    }
    Ok(headers)
}

fn put(headers: &mut HeaderMap, key: &str, name: &str, value: &str) -> Result<()> {
    let parsed = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(value));
    let (Ok(name), Ok(mut value)) = parsed else {
        // The value may be a secret, so the message leaves it out.
        let name = name.escape_debug();
        return Err(wrong(format!("`{key}`: '{name}' or its value cannot be a header")));
    };
    value.set_sensitive(true);
    headers.insert(name, value);
    Ok(())
}

fn resource(otlp: &Otlp, env: Environment<'_>) -> Vec<(String, String)> {
    let mut attributes = pairs(&env("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default());
    let of_list = |name: &str, list: &[(String, String)]| {
        list.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone())
    };
    let service = otlp.service_name.clone().or_else(|| env("OTEL_SERVICE_NAME"));
    let service = service
        .or_else(|| of_list("service.name", &attributes))
        .unwrap_or_else(|| DEFAULT_SERVICE.to_owned());
    attributes.retain(|(key, _)| key != "service.name" && key != "service.version");
    attributes.push(("service.name".to_owned(), service));
    attributes.push(("service.version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()));
    attributes
}

/// Returns the time limit of a request. The environment applies if the setting has its default.
fn timeout(otlp: &Otlp, env: Environment<'_>) -> Span {
    let milliseconds = env("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT")
        .or_else(|| env("OTEL_EXPORTER_OTLP_TIMEOUT"))
        .and_then(|text| text.parse().ok());
    match milliseconds {
        Some(milliseconds) if otlp.timeout == Otlp::default().timeout => {
            Span(std::time::Duration::from_millis(milliseconds))
        }
        _ => otlp.timeout,
    }
}

/// A list such as `key=value,key=value`, whose values are percent-encoded.
fn pairs(list: &str) -> Vec<(String, String)> {
    let decoded = |text: &str| percent_decode_str(text.trim()).decode_utf8_lossy().into_owned();
    let pairs = list.split(',').filter_map(|pair| pair.split_once('='));
    pairs.map(|(key, value)| (decoded(key), decoded(value))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tracing(otlp: &Otlp, variables: &[(&str, &str)]) -> Result<Option<Tracing>> {
        Tracing::with(otlp, &|name| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    fn at(endpoint: &str) -> Otlp {
        Otlp { endpoint: Some(endpoint.to_owned()), ..Otlp::default() }
    }

    #[test]
    fn traces_are_off_until_an_address_is_named() {
        assert!(tracing(&Otlp::default(), &[]).unwrap().is_none());
        let address = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318/");
        let on = tracing(&Otlp::default(), &[address]).unwrap().unwrap();
        assert_eq!(on.url, "http://c:4318/v1/traces");
        let whole = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://c/t");
        assert_eq!(
            tracing(&Otlp::default(), &[address, whole]).unwrap().unwrap().url,
            "https://c/t"
        );
        assert_eq!(
            tracing(&at("http://own"), &[whole]).unwrap().unwrap().url,
            "http://own/v1/traces"
        );
        for off in [
            ("OTEL_SDK_DISABLED", "true"),
            ("OTEL_TRACES_EXPORTER", "none"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ] {
            assert!(tracing(&Otlp::default(), &[address, off]).unwrap().is_none(), "{off:?}");
        }
    }

    #[test]
    fn headers_come_from_the_settings_or_else_from_the_environment() {
        let listed = ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20x,team=a");
        let on = tracing(&at("http://c"), &[listed]).unwrap().unwrap();
        assert_eq!(
            (&on.headers["authorization"], &on.headers["team"]),
            (&"Bearer x".parse().unwrap(), &"a".parse().unwrap())
        );
        let mut own = at("http://c");
        own.header_env.insert("authorization".to_owned(), "KEY".to_owned());
        let on = tracing(&own, &[listed, ("KEY", "mine")]).unwrap().unwrap();
        assert_eq!(on.headers.len(), 1);
        assert_eq!(on.headers["authorization"], "mine");
        let missing = tracing(&own, &[]).unwrap_err();
        assert!(missing.message().contains("'KEY' is not set"), "{missing}");
        own.header_env.insert("bad name".to_owned(), "KEY".to_owned());
        assert!(tracing(&own, &[("KEY", "mine")]).unwrap_err().message().contains("'bad name'"));
    }

    #[test]
    fn the_service_and_the_ratio_are_named_in_the_usual_variables() {
        let variables = [
            ("OTEL_SERVICE_NAME", "agents"),
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=x,deployment.environment=test"),
            ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
            ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
        ];
        let on = tracing(&at("http://c"), &variables).unwrap().unwrap();
        assert!((on.options.sample_ratio - 0.25).abs() < 1e-9);
        let named = |key: &str| on.resource.iter().filter(|(it, _)| it == key).collect::<Vec<_>>();
        assert_eq!(named("service.name"), [&("service.name".to_owned(), "agents".to_owned())]);
        assert_eq!(named("deployment.environment").len(), 1);
        let instance = |tracing: Tracing| {
            let found = tracing.of_node("a").resource.into_iter().find(|(key, _)| key == INSTANCE);
            found.unwrap().1
        };
        assert_eq!(instance(on), "a");
        let own = ("OTEL_RESOURCE_ATTRIBUTES", "service.instance.id=mine");
        assert_eq!(instance(tracing(&at("http://c"), &[own]).unwrap().unwrap()), "mine");
        let sampler = ("OTEL_TRACES_SAMPLER", "jaeger_remote");
        assert!(tracing(&at("http://c"), &[sampler]).is_err());
    }

    #[test]
    fn an_address_that_no_request_can_go_to_is_refused_without_its_password() {
        for bad in ["collector:4318", "ftp://c", "http://me:secret@c"] {
            let error = tracing(&at(bad), &[]).unwrap_err();
            assert!(error.message().contains("`telemetry.otlp.endpoint`"), "{error}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }
}
