//! Observability of a server: a log line for each step of a run, and metrics of all steps.

use std::collections::BTreeSet;

use serde_json::Value;
use trilogue_gateway::metric_names::{METRICS, MetricKind};

use crate::approval::start_waiting_run;
use crate::cli_protocols::MAIL;
use crate::harness::{Home, Server, until};
use crate::messages::ask;

pub(crate) const CONFIG: &str = r#"
[agents.echo]
kind = "builtin"

[agents.mailcomposer]
kind = "builtin"

[agents.broken]
kind = "agent-client"
command = ["false"]
"#;

fn monitored(settings: &str) -> (Home, Server) {
    let home = Home::new();
    home.write("t.toml", &format!("{CONFIG}{settings}"));
    let server = home.start(&["serve", "--config", "t.toml", "--listen", "127.0.0.1:0"]);
    (home, server)
}

/// The lines of the log with this message.
fn lines(home: &Home, message: &str) -> Vec<Value> {
    let log = home.log();
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|line| line["message"] == message).collect()
}

/// The value of a series, named as in `/metrics`.
fn value(metrics: &str, series: &str) -> f64 {
    let of = |line: &str| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok();
    metrics.lines().find_map(of).unwrap_or_else(|| panic!("{series}:\n{metrics}"))
}

#[test]
fn the_log_has_a_line_for_each_step_of_a_run() {
    let (home, server) = monitored("");
    server.run(&["run", "echo", "Hello"]).expect(0);
    let (run, question) = start_waiting_run(&server);
    server.run(&["approve", &question, "--yes"]).expect(0);
    server.run(&["run", "broken", "Hello"]).expect(1);
    let failed = until(|| lines(&home, "run failed").pop());
    let ended = until(|| Some(lines(&home, "run ended")).filter(|ended| ended.len() == 2));
    let started = lines(&home, "run started");
    let agents: Vec<_> = started.iter().map(|line| line["agent"].as_str().unwrap()).collect();
    assert_eq!(agents, ["echo", "mailcomposer", "broken"], "each run starts once");
    for line in started.iter().chain(&ended).chain([&failed]) {
        assert_eq!(
            (&line["level"], &line["tenant"]),
            (&"INFO".into(), &"default".into()),
            "{line}"
        );
        assert!(line["run"].is_string() && line["thread"].is_string(), "{line}");
    }
    assert!(started[0]["queue_ms"].is_u64(), "{}", started[0]);
    assert!(ended.iter().all(|line| line["outcome"] == "completed"), "{ended:?}");
    assert!(ended.iter().all(|line| line["duration_ms"].is_u64()), "{ended:?}");
    assert_eq!(failed["code"], "peer_unavailable", "{failed}");
    let [asked] = &lines(&home, "question asked")[..] else { panic!("{}", home.log()) };
    let [answered] = &lines(&home, "question ended")[..] else { panic!("{}", home.log()) };
    for line in [asked, answered] {
        assert_eq!(
            (&line["run"], &line["question"]),
            (&run.clone().into(), &question.clone().into())
        );
    }
    assert_eq!(answered["how"], "answered", "{answered}");
    assert!(answered["waited_ms"].is_u64(), "{answered}");
}

#[test]
fn requests_are_logged_at_debug_only() {
    let (home, server) = monitored("[log]\nlevel = \"info,trilogue_gateway=debug\"\n");
    server.run(&["run", "echo", "Hello"]).expect(0);
    let answered = until(|| {
        lines(&home, "request answered").into_iter().find(|line| line["operation"] == "create_run")
    });
    assert!(answered["status"].is_u64() && answered["duration_ms"].is_u64(), "{answered}");
    assert_eq!(answered["level"], "DEBUG");
}

#[test]
fn metrics_tell_of_runs_questions_agents_and_the_store() {
    let (home, server) = monitored("");
    server.run(&["run", "echo", "Hello"]).expect(0);
    let (_, question) = start_waiting_run(&server);
    server.run(&["run", "broken", "Hello"]).expect(1);
    let metrics = ask(&home, &server, "/metrics", None);
    for (series, expected) in [
        ("trilogue_runs_started_total{agent=\"echo\"}", 1.0),
        ("trilogue_runs_ended_total{agent=\"echo\",outcome=\"completed\"}", 1.0),
        ("trilogue_runs_ended_total{agent=\"broken\",outcome=\"failed\"}", 1.0),
        ("trilogue_run_failures_total{code=\"peer_unavailable\"}", 1.0),
        ("trilogue_runs{agent=\"mailcomposer\",status=\"waiting\"}", 1.0),
        ("trilogue_runs{agent=\"echo\",status=\"running\"}", 0.0),
        ("trilogue_questions{agent=\"mailcomposer\"}", 1.0),
        ("trilogue_queue_oldest_seconds", 0.0),
        ("trilogue_run_seconds_count{agent=\"echo\"}", 1.0),
        ("trilogue_run_first_event_seconds_count{agent=\"echo\"}", 1.0),
        ("trilogue_run_first_message_seconds_count{agent=\"echo\"}", 1.0),
        ("trilogue_run_seconds_bucket{agent=\"echo\",le=\"86400\"}", 1.0),
        ("trilogue_store_runs", 3.0),
    ] {
        assert!((value(&metrics, series) - expected).abs() < 0.5, "{series}:\n{metrics}");
    }
    for series in [
        "trilogue_agent_process_failures_total{agent=\"broken\"}",
        "trilogue_store_commit_seconds_count",
        "trilogue_store_events_total",
        "trilogue_store_appended_bytes_total",
        "trilogue_store_size_bytes",
        "process_start_time_seconds",
    ] {
        assert!(value(&metrics, series) > 0.0, "{series}:\n{metrics}");
    }
    server.run(&["approve", &question, "--yes"]).expect(0);
    let answered = "trilogue_question_answer_seconds_count{agent=\"mailcomposer\"}";
    let metrics = until(|| {
        let metrics = ask(&home, &server, "/metrics", None);
        (value(&metrics, "trilogue_runs{agent=\"mailcomposer\",status=\"waiting\"}") < 0.5
            && metrics.contains("trilogue_runs_ended_total{agent=\"mailcomposer\""))
        .then_some(metrics)
    });
    assert!((value(&metrics, answered) - 1.0).abs() < 0.5, "{metrics}");
    assert!(value(&metrics, "trilogue_questions{agent=\"mailcomposer\"}") < 0.5, "{metrics}");
}

#[test]
fn a_question_that_waits_is_counted_by_the_next_server_too() {
    let (home, server) = monitored("");
    server.run(&["run", "mailcomposer", MAIL]).expect(3);
    server.stop(rustix::process::Signal::KILL);
    let server = home.start(&["serve", "--config", "t.toml", "--listen", "127.0.0.1:0"]);
    let metrics = ask(&home, &server, "/metrics", None);
    for series in [
        "trilogue_questions{agent=\"mailcomposer\"}",
        "trilogue_runs{agent=\"mailcomposer\",status=\"waiting\"}",
    ] {
        assert!((value(&metrics, series) - 1.0).abs() < 0.5, "{series}:\n{metrics}");
    }
}

#[test]
fn every_metric_is_in_the_reference_and_no_label_holds_an_id() {
    let (home, server) = monitored("");
    let (run, question) = start_waiting_run(&server);
    let metrics = ask(&home, &server, "/metrics", None);
    assert!(!metrics.contains(&run) && !metrics.contains(&question), "{metrics}");
    let known: BTreeSet<_> = METRICS.iter().map(|metric| metric.name).collect();
    let typed = metrics.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    for (name, kind) in typed.filter_map(|line| line.split_once(' ')) {
        let metric = METRICS.iter().find(|metric| metric.name == name);
        let metric = metric.unwrap_or_else(|| panic!("{name} is not in {known:?}"));
        let expected = match metric.kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Short | MetricKind::Long | MetricKind::Count => "histogram",
        };
        assert_eq!(kind, expected, "{name}");
    }
}
