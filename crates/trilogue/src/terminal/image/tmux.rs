//! Images within tmux, on a terminal with Kitty's protocol.
//!
//! tmux passes a sequence on without moving the cursor there, so an image cannot be drawn at it.
//! Instead the terminal gets the image, and the screen gets characters that stand for its cells: tmux moves them like text.

use std::process::{Command, Stdio};

use super::{DEFAULT_CELL_PIXELS, chunks};

/// The character that represents a cell of an image.
const PLACEHOLDER: char = '\u{10eeee}';
/// Marks of the rows of an image, in the order of Kitty's table. There are no more rows than these.
const ROW_MARKS: [char; 24] = [
    '\u{305}', '\u{30d}', '\u{30e}', '\u{310}', '\u{312}', '\u{33d}', '\u{33e}', '\u{33f}',
    '\u{346}', '\u{34a}', '\u{34b}', '\u{34c}', '\u{350}', '\u{351}', '\u{352}', '\u{357}',
    '\u{35b}', '\u{363}', '\u{364}', '\u{365}', '\u{366}', '\u{367}', '\u{368}', '\u{369}',
];
/// How many times as high as wide a character is.
const CELL_RATIO: u32 = 2;

/// Whether tmux passes sequences on in this pane, as its user has set it.
pub(super) fn passes_sequences() -> bool {
    let mut command = Command::new("tmux");
    command.args(["show-options", "-Apv", "allow-passthrough"]).stdin(Stdio::null());
    let output = command.stderr(Stdio::null()).output();
    output.is_ok_and(|output| matches!(output.stdout.trim_ascii(), b"on" | b"all"))
}

/// Returns the bytes that draw a PNG of this size in at most `columns` columns.
pub(super) fn draw(file: &[u8], size: (u32, u32), columns: usize, cell: Option<u32>) -> String {
    let (columns, rows) = cells(size, columns, cell.unwrap_or(DEFAULT_CELL_PIXELS));
    let id = id_of(file);
    let keys = format!("a=T,U=1,f=100,q=2,i={id},c={columns},r={rows},");
    let mut out = String::new();
    for sequence in chunks(file, &keys) {
        out.push_str("\u{1b}Ptmux;");
        out.push_str(&sequence.replace('\u{1b}', "\u{1b}\u{1b}"));
        out.push_str("\u{1b}\\");
    }
    let row_marks = ROW_MARKS.iter().take(usize::try_from(rows).unwrap_or(usize::MAX));
    let rows = row_marks.map(|mark| {
        let rest = PLACEHOLDER.to_string().repeat(columns.saturating_sub(1) as usize);
        format!("\u{1b}[38;5;{id}m{PLACEHOLDER}{mark}{rest}\u{1b}[39m")
    });
    out.push_str(&rows.collect::<Vec<_>>().join("\n"));
    out
}

/// How many columns and rows an image takes that keeps its shape.
fn cells((width, height): (u32, u32), columns: usize, cell: u32) -> (u32, u32) {
    let most = u32::try_from(columns).unwrap_or(u32::MAX).max(1);
    let cell = cell.max(1);
    let columns = width.div_ceil(cell).clamp(1, most);
    let rows = |columns: u32| {
        let pixels = u64::from(height) * u64::from(columns) * u64::from(cell);
        let rows = pixels.div_ceil(u64::from(width.max(1)) * u64::from(cell * CELL_RATIO));
        u32::try_from(rows).unwrap_or(u32::MAX).max(1)
    };
    let limit = ROW_MARKS.len() as u32;
    let natural = rows(columns);
    match natural <= limit {
        true => (columns, natural),
        false => ((columns * limit / natural).max(1), limit),
    }
}

/// The number by which the terminal knows an image, which is also the colour of its characters. The same image has the same.
fn id_of(file: &[u8]) -> u8 {
    // Those of 16 and less are the colours that a person has chosen, which a theme may change.
    let sum =
        file.iter().fold(0_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add((*byte).into()));
    u8::try_from(17 + sum % 238).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_keeps_its_shape_and_fits() {
        assert_eq!(cells((160, 160), 80, 8), (20, 10));
        assert_eq!(cells((1_600, 160), 80, 8), (80, 4));
        assert_eq!(cells((80, 8_000), 80, 8), (1, 24));
        assert_eq!(cells((1, 1), 0, 0), (1, 1));
    }

    #[test]
    fn every_escape_is_doubled_and_every_row_marked() {
        let drawn = draw(&[1; 5_000], (32, 32), 80, Some(8));
        let passed: Vec<_> = drawn.split("\u{1b}Ptmux;").skip(1).collect();
        assert_eq!(passed.len(), 2, "{drawn}");
        assert!(passed[0].starts_with("\u{1b}\u{1b}_Ga=T,U=1,f=100,q=2,i="), "{drawn}");
        assert!(passed[0].ends_with("\u{1b}\u{1b}\\\u{1b}\\"), "{drawn}");
        let (_, rows) = drawn.rsplit_once("\u{1b}\\").unwrap();
        let rows: Vec<_> = rows.lines().collect();
        assert_eq!(rows.len(), 2);
        for (row, mark) in rows.iter().zip(ROW_MARKS) {
            assert_eq!(row.matches(PLACEHOLDER).count(), 4, "{row}");
            assert!(row.contains(&format!("m{PLACEHOLDER}{mark}")), "{row}");
        }
    }
}
