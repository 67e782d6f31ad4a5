//! A small bar chart as PNG.
//!
//! The few bytes are not compressed: a compression library would be a dependency for this image alone.

/// Width and height of the image, in pixels. A row has whole bytes.
const SIDE: usize = 48;
const BARS: usize = 4;

const SIGNATURE: &[u8] = b"\x89PNG\r\n\x1a\n";
/// One bit a pixel, its color from the palette; no interlacing.
const FORMAT: [u8; 5] = [1, 3, 0, 0, 0];
/// Red, green and blue of the background and of the bars.
const PALETTE: [u8; 6] = [250, 250, 247, 38, 84, 124];

pub(super) fn png(topic: &str) -> Vec<u8> {
    let side = (SIDE as u32).to_be_bytes();
    let mut file = SIGNATURE.to_vec();
    chunk(&mut file, b"IHDR", &[&side, &side, &FORMAT[..]].concat());
    chunk(&mut file, b"PLTE", &PALETTE);
    chunk(&mut file, b"IDAT", &stored(&rows(topic)));
    chunk(&mut file, b"IEND", &[]);
    file
}

/// The pixels, row by row from the top. A byte before each row says that it is not filtered.
fn rows(topic: &str) -> Vec<u8> {
    let heights: [usize; BARS] = std::array::from_fn(|bar| {
        let sum: usize = topic.bytes().skip(bar).step_by(BARS).map(usize::from).sum();
        SIDE / 6 + sum % (SIDE * 2 / 3)
    });
    let slot = SIDE / BARS;
    let is_bar = |row: usize, column: usize| {
        let height = heights.get(column / slot).copied().unwrap_or_default();
        column % slot >= slot / 4 && row >= SIDE - height
    };
    let byte = |row: usize, first: usize| {
        (first..first + 8).fold(0, |bits, column| (bits << 1) | u8::from(is_bar(row, column)))
    };
    let row = |row: usize| std::iter::once(0).chain((0..SIDE / 8).map(move |at| byte(row, at * 8)));
    (0..SIDE).flat_map(row).collect()
}

/// Appends a part of the file: its length, its name, its contents and their checksum.
fn chunk(file: &mut Vec<u8>, name: &[u8; 4], contents: &[u8]) {
    file.extend((contents.len() as u32).to_be_bytes());
    let begin = file.len();
    file.extend(name);
    file.extend(contents);
    let sum = file.iter().skip(begin).fold(u32::MAX, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| (sum >> 1) ^ ((sum & 1) * 0xEDB8_8320))
    });
    file.extend((!sum).to_be_bytes());
}

/// A zlib stream of one block that is not compressed.
fn stored(bytes: &[u8]) -> Vec<u8> {
    const { assert!(SIDE * (SIDE / 8 + 1) <= u16::MAX as usize, "a block has 64 KiB at most") };
    let length = bytes.len() as u16;
    let (low, high) = bytes.iter().fold((1_u32, 0_u32), |(low, high), byte| {
        let low = (low + u32::from(*byte)) % 65_521;
        (low, (high + low) % 65_521)
    });
    let mut stream = vec![0x78, 0x01, 1];
    stream.extend(length.to_le_bytes());
    stream.extend((!length).to_le_bytes());
    stream.extend(bytes);
    stream.extend(((high << 16) | low).to_be_bytes());
    stream
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The colors of the image, row by row, as a third-party library reads them.
    fn pixels(topic: &str) -> Vec<[u8; 3]> {
        let file = png(topic);
        let mut decoder = png::Decoder::new(std::io::Cursor::new(&file));
        decoder.set_transformations(png::Transformations::EXPAND);
        let mut reader = decoder.read_info().unwrap();
        let mut image = vec![0; reader.output_buffer_size().unwrap()];
        let frame = reader.next_frame(&mut image).unwrap();
        assert_eq!((frame.width, frame.height), (48, 48));
        image.chunks(3).map(|pixel| pixel.try_into().unwrap()).collect()
    }

    #[test]
    fn the_chart_is_an_image_that_depends_on_the_topic() {
        let image = pixels("durable logs");
        assert_ne!(image, pixels("something else"));
        let [background, bar] = [[250, 250, 247], [38, 84, 124]];
        assert!(image.iter().all(|pixel| [background, bar].contains(pixel)));
        // A bar reaches the lower edge, between gaps.
        let last_row = &image[47 * 48..];
        assert_eq!((last_row[0], last_row[3], last_row[12]), (background, bar, background));
    }
}
