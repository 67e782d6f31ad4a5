//! The nine flows of the Agent Connect Protocol's document, each as on its page, against a separate server.

use crate::docs::run_section;

#[test]
fn retrieve_all_agents_supported_by_the_server() {
    run_section("connect-flows.md", "Retrieve all agents supported by the server");
}

#[test]
fn retrieve_an_agent_from_its_name_and_version() {
    run_section("connect-flows.md", "Retrieve an agent from its name and version");
}

#[test]
fn retrieve_agent_descriptor_from_its_identifier() {
    run_section("connect-flows.md", "Retrieve agent descriptor from its identifier");
}

#[test]
fn start_a_run_of_an_agent_and_poll_for_completion() {
    run_section("connect-flows.md", "Start a Run of an Agent and poll for completion");
}

#[test]
fn start_a_run_of_an_agent_and_block_until_completion() {
    run_section("connect-flows.md", "Start a Run of an Agent and block until completion");
}

#[test]
fn start_a_run_of_an_agent_with_a_callback() {
    run_section("connect-flows.md", "Start a Run of an Agent with a callback");
}

#[test]
fn start_a_run_and_resume_it_upon_interruption() {
    run_section("connect-flows.md", "Start a run and resume it upon interruption");
}

#[test]
fn start_of_multiple_runs_over_the_same_thread() {
    run_section("connect-flows.md", "Start of multiple runs over the same thread");
}

#[test]
fn start_a_run_and_stream_output_until_completion() {
    run_section("connect-flows.md", "Start a Run and stream output until completion");
}
