use std::sync::Arc;

use trilogue_sdk::prelude::*;
use trilogue_sdk::recorder::Recorder;
use trilogue_sdk::{RunInfo, run_turn};

use crate::streaming::Weather;

#[tokio::test]
async fn the_weather_is_told() -> Result<(), AgentError> {
    let recorder = Arc::new(Recorder::default());
    let turn = Turn::Start { input: Input::from("How will it be?") };
    run_turn(&Weather, turn, RunInfo::sample("weather")?, recorder.clone()).await?;
    assert_eq!(recorder.messages()[0].text(), "Tomorrow it will be 21 degrees.");
    Ok(())
}
