use trilogue_sdk::prelude::*;
use trilogue_sdk::recorder::Recorder;

use crate::streaming::Weather;

#[tokio::test]
async fn the_weather_is_told() -> Result<(), AgentError> {
    let recorder = Recorder::default();
    recorder.run(&Weather, "How will it be?").await?;
    assert_eq!(recorder.messages()[0].text(), "Tomorrow it will be 21 degrees.");
    Ok(())
}
