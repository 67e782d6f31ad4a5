//! A fuzzer's requests from the official OpenAPI document of the Agent Connect Protocol find no failure and no undocumented shape.

use trilogue_testkit::foreign::{Conformance, ConformanceOptions, Foreign};
use trilogue_testkit::{Folder, specs};

/// A fixed seed, so that every machine sends the same requests.
const SEED: &str = "20260821";
/// The number of generated requests per operation, besides those that cover each of its members: for the whole document, and then for errors.
const EXAMPLES: [&str; 2] = ["30", "5"];

async fn fuzz(options: ConformanceOptions, further: &[&str]) {
    let Some(document) = specs::document("agent_connect/openapi-0.2.3.json") else { return };
    let dir = Folder::new().unwrap();
    let program = Conformance::start(dir.path(), options).await.unwrap();
    let (url, document) = (program.url(), document.display().to_string());
    let arguments = ["--url", &url, "--document", &document, "--seed", SEED];
    let arguments = [&arguments[..], further].concat();
    let said = Foreign::Fuzz.run(&arguments).await.unwrap_or_else(|error| panic!("{error:#}"));
    // The requests must have reached the agents too, and not only been refused.
    let count = |what: &str| -> u64 {
        let line = said.lines().find_map(|line| line.strip_prefix(what));
        line.unwrap_or_else(|| panic!("no {what} in\n{said}")).trim().parse().unwrap()
    };
    assert!(count("operations tested:") == 30, "{said}");
    assert!(count("answers with 2xx:") > 100, "{said}");
    assert!(count("answers with 4xx:") > 100, "{said}");
    let status = program.stop().await.unwrap();
    assert!(status.success(), "the stop ended with {status}");
}

/// The bodies of errors are Trilogue's own. They are the one exception from the document.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn made_up_requests_are_answered_as_documented() {
    let options = ConformanceOptions::connect("sqlite:agents.db", "/connect");
    fuzz(options, &["--examples", EXAMPLES[0]]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_as_strings_are_as_documented_too() {
    let options = ConformanceOptions::connect("memory:", "/connect");
    let options = ConformanceOptions { arguments: vec!["--errors-as-strings"], ..options };
    fuzz(options, &["--examples", EXAMPLES[1], "--errors"]).await;
}
