//! A small bar chart as PNG.

use trilogue_sdk::AgentError;

/// Width and height of the image, in pixels.
const SIDE: usize = 48;
const BARS: usize = 4;
/// Bytes of a pixel: red, green, blue.
const PIXEL_BYTES: usize = 3;

const BACKGROUND: [u8; PIXEL_BYTES] = [250, 250, 247];
const BAR: [u8; PIXEL_BYTES] = [38, 84, 124];

pub(super) fn png(topic: &str) -> Result<Vec<u8>, AgentError> {
    let mut file = Vec::new();
    let side = SIDE as u32;
    let mut encoder = png::Encoder::new(&mut file, side, side);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let failed = |error: png::EncodingError| {
        AgentError::failed(format!("the chart cannot be drawn: {error}"))
    };
    let mut writer = encoder.write_header().map_err(failed)?;
    writer.write_image_data(&pixels(topic)).map_err(failed)?;
    writer.finish().map_err(failed)?;
    Ok(file)
}

/// The pixels, row by row from the top.
fn pixels(topic: &str) -> Vec<u8> {
    let heights: [usize; BARS] = std::array::from_fn(|bar| {
        let sum: usize = topic.bytes().skip(bar).step_by(BARS).map(usize::from).sum();
        SIDE / 6 + sum % (SIDE * 2 / 3)
    });
    let slot = SIDE / BARS;
    let color = |row: usize, column: usize| {
        let height = heights.get(column / slot).copied().unwrap_or_default();
        let inside = column % slot >= slot / 4 && row >= SIDE - height;
        if inside { BAR } else { BACKGROUND }
    };
    (0..SIDE).flat_map(|row| (0..SIDE).flat_map(move |column| color(row, column))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chart_is_an_image_that_depends_on_the_topic() {
        let file = png("durable logs").unwrap();
        let mut reader = png::Decoder::new(std::io::Cursor::new(&file)).read_info().unwrap();
        let mut image = vec![0; reader.output_buffer_size().unwrap()];
        let frame = reader.next_frame(&mut image).unwrap();
        assert_eq!((frame.width, frame.height), (48, 48));
        assert_eq!(image, pixels("durable logs"));
        assert_ne!(image, pixels("something else"));
        assert!(image.chunks(PIXEL_BYTES).any(|pixel| pixel == BAR));
    }
}
