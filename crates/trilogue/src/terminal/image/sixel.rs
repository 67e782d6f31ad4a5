//! Sixel, which takes pixels and not files: a PNG is decoded, scaled down to the available width, and drawn in a fixed cube of colours with ordered
//! dithering.
//!
//! The maintained crates for this choose better colours, but bring twenty dependencies: too many for a terminal's images.

use std::fmt::Write as _;
use std::io::Cursor;

use png::{ColorType, Decoder, Limits, Transformations};

/// Steps of each of red, green and blue.
const STEPS: u8 = 6;
const COLOURS: usize = (STEPS as usize).pow(3);
/// How many rows of pixels one line of characters has.
const BAND: usize = 6;
/// The most memory that decoding takes, in bytes.
const MAX_DECODER_BYTES: usize = 64 * 1024 * 1024;
/// How much each pixel of a square of four by four is brighter before its colour is chosen, in sixteenths of a step.
const DITHER: [[u8; 4]; 4] = [[0, 8, 2, 10], [12, 4, 14, 6], [3, 11, 1, 9], [15, 7, 13, 5]];

/// An image as indices into the cube; a transparent pixel is `None`.
struct Indexed {
    width: usize,
    colours: Vec<Option<u8>>,
}

/// The sequence that draws a PNG no wider than this many pixels; `None` if it is damaged or too large.
pub(super) fn draw(file: &[u8], room: usize) -> Option<String> {
    let image = Indexed::of_png(file, room.max(1))?;
    let height = image.colours.len() / image.width;
    // Pixels are square, and those that are not drawn stay as they are.
    let mut out = format!("\u{1b}P0;1q\"1;1;{};{height}", image.width);
    define_colours(&mut out);
    for band in image.colours.chunks(BAND * image.width) {
        draw_band(&mut out, band, image.width);
    }
    out.push_str("\u{1b}\\");
    Some(out)
}

// === impl Indexed ===

impl Indexed {
    fn of_png(file: &[u8], room: usize) -> Option<Self> {
        let mut decoder =
            Decoder::new_with_limits(Cursor::new(file), Limits { bytes: MAX_DECODER_BYTES });
        decoder.set_transformations(Transformations::EXPAND | Transformations::STRIP_16);
        let mut reader = decoder.read_info().ok()?;
        let size = reader.output_buffer_size().filter(|size| *size <= MAX_DECODER_BYTES)?;
        let mut pixels = vec![0; size];
        let frame = reader.next_frame(&mut pixels).ok()?;
        let (from, height) = (frame.width as usize, frame.height as usize);
        let samples = frame.color_type.samples();
        let to = from.min(room);
        let rows = (height * to).div_ceil(from).max(1);
        let mut colours = Vec::with_capacity(to * rows);
        for y in 0..rows {
            let row = (y * from / to).min(height - 1);
            for x in 0..to {
                let at = (row * from + x * from / to) * samples;
                let pixel = pixels.get(at..at + samples)?;
                let shade = DITHER[y % 4][x % 4];
                colours.push(colour(pixel, frame.color_type, shade));
            }
        }
        Some(Self { width: to, colours })
    }
}

fn colour(pixel: &[u8], kind: ColorType, shade: u8) -> Option<u8> {
    let (rgb, alpha) = match (kind, pixel) {
        (ColorType::Grayscale, &[grey]) => ([grey; 3], u8::MAX),
        (ColorType::GrayscaleAlpha, &[grey, alpha]) => ([grey; 3], alpha),
        (ColorType::Rgb, &[red, green, blue]) => ([red, green, blue], u8::MAX),
        (ColorType::Rgba, &[red, green, blue, alpha]) => ([red, green, blue], alpha),
        _ => return None,
    };
    (alpha >= 128).then(|| {
        rgb.into_iter().fold(0, |index, value| {
            let scaled = u32::from(value) * u32::from(STEPS - 1) * 16 / 255 + u32::from(shade);
            let step = u8::try_from(scaled / 16).unwrap_or(0).min(STEPS - 1);
            index * STEPS + step
        })
    })
}

/// Defines the cube; a colour is in percent.
fn define_colours(out: &mut String) {
    for index in 0..COLOURS {
        let step = |power: u32| index / usize::from(STEPS).pow(power) % usize::from(STEPS);
        let [red, green, blue] = [step(2), step(1), step(0)].map(|step| step * 20);
        // Writing to a String cannot fail.
        let _ = write!(out, "#{index};2;{red};{green};{blue}");
    }
}

/// Draws up to six rows, one colour over the other.
fn draw_band(out: &mut String, band: &[Option<u8>], width: usize) {
    let mut used = [false; COLOURS];
    for index in band.iter().flatten() {
        if let Some(used) = used.get_mut(usize::from(*index)) {
            *used = true;
        }
    }
    for index in (0..COLOURS).filter(|index| used[*index]) {
        let _ = write!(out, "#{index}");
        let (mut last, mut count) = (0_u8, 0_usize);
        for x in 0..width {
            let bits = band.chunks(width).enumerate().fold(0_u8, |bits, (row, pixels)| {
                let is_set = pixels.get(x).copied().flatten().map(usize::from) == Some(index);
                bits | u8::from(is_set) << row
            });
            if bits != last && count > 0 {
                put(out, last, count);
                count = 0;
            }
            (last, count) = (bits, count + 1);
        }
        put(out, last, count);
        out.push('$');
    }
    out.push('-');
}

/// Writes a column of six pixels, repeated.
fn put(out: &mut String, bits: u8, count: usize) {
    let letter = char::from(b'?' + bits);
    match count {
        0..=3 => out.extend(std::iter::repeat_n(letter, count)),
        _ => {
            let _ = write!(out, "!{count}{letter}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn png(width: u32, height: u32, colour: ColorType, pixels: &[u8]) -> Vec<u8> {
        let mut file = Vec::new();
        let mut encoder = png::Encoder::new(&mut file, width, height);
        encoder.set_color(colour);
        encoder.write_header().unwrap().write_image_data(pixels).unwrap();
        file
    }

    /// Returns the part after the colours.
    fn drawn(file: &[u8], room: usize) -> String {
        let sequence = draw(file, room).unwrap();
        assert!(sequence.starts_with("\u{1b}P0;1q\"1;1;") && sequence.ends_with("\u{1b}\\"));
        let (_, behind) = sequence.split_once("#215;2;100;100;100").unwrap();
        behind.trim_end_matches("\u{1b}\\").to_owned()
    }

    #[test]
    fn each_row_and_colour_is_where_it_belongs() {
        // Two columns: white above black, seven rows; white is the last colour of the cube, black the first.
        let mut pixels = vec![255; 2 * 3];
        pixels.extend(vec![0; 2 * 6 * 3]);
        let file = png(2, 7, ColorType::Rgb, &pixels);
        assert!(draw(&file, 9).unwrap().contains("\"1;1;2;7"));
        // The first row is bit 1, the other five are bits 2 to 32; the seventh begins the next band.
        assert_eq!(drawn(&file, 9), "#0}}$#215@@$-#0@@$-");
    }

    #[test]
    fn a_wide_image_is_made_narrower_and_what_is_transparent_is_left_out() {
        let row: Vec<u8> = (0..100).flat_map(|_| [255, 255, 255, 255]).collect();
        let file = png(100, 1, ColorType::Rgba, &row);
        assert!(draw(&file, 10).unwrap().contains("\"1;1;10;1"));
        assert_eq!(drawn(&file, 10), "#215!10@$-");
        let clear = png(1, 1, ColorType::Rgba, &[255, 255, 255, 0]);
        assert_eq!(drawn(&clear, 10), "-");
        let grey = png(1, 1, ColorType::Grayscale, &[255]);
        assert_eq!(drawn(&grey, 10), "#215@$-");
    }

    #[test]
    fn a_damaged_file_is_not_drawn() {
        let file = png(4, 4, ColorType::Grayscale, &[9; 16]);
        for end in 0..file.len() - 12 {
            assert!(draw(&file[..end], 9).is_none_or(|sequence| sequence.len() < 10_000), "{end}");
        }
        assert!(draw(b"hello", 9).is_none());
    }
}
