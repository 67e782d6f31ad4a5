//! Draws images on terminals that take them as files, or as pixels.
//!
//! A file travels in base64 inside one control sequence that this module writes, so the terminal cannot interpret its bytes as anything except
//! an image.

mod sixel;
mod tmux;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Chooses the way to draw, or `none`; without it the terminal's own variables do.
const VARIABLE: &str = "TRILOGUE_IMAGES";
/// The largest file that is sent to a terminal, in bytes.
const MAX_DRAWN_BYTES: usize = 8 * 1024 * 1024;
/// The largest width and height that a terminal is asked to draw, in pixels.
const MAX_DRAWN_PIXELS: u32 = 8_192;
/// How much base64 one sequence of the Kitty protocol may have, in bytes.
const KITTY_CHUNK_BYTES: usize = 4_096;
/// The width of a character in pixels, if the terminal does not report one.
const DEFAULT_CELL_PIXELS: u32 = 8;

const PNG_SIGNATURE: &[u8] = b"\x89PNG\r\n\x1a\n";

/// How a terminal draws images.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ImageProtocol {
    /// Kitty's, which takes PNG.
    Kitty,
    /// Kitty's protocol, inside tmux.
    KittyInTmux,
    /// iTerm2's, which takes PNG, JPEG and GIF.
    Iterm,
    /// Sixel, which takes the decoded pixels of a PNG.
    Sixel,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ImageFormat {
    /// With its width and height in pixels.
    Png(u32, u32),
    JpegOrGif,
}

// === impl ImageProtocol ===

impl ImageProtocol {
    /// Returns the protocol by which the terminal draws images, or `None` if it draws none. Within screen it is always `None`, and within tmux
    /// unless tmux passes Kitty's sequences through.
    pub(crate) fn of_terminal() -> Option<Self> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        Self::find(variable, tmux::passes_sequences)
    }

    fn find(
        variable: impl Fn(&str) -> Option<String>,
        tmux_passes: impl Fn() -> bool,
    ) -> Option<Self> {
        let is_tmux = variable("TMUX").is_some();
        match variable(VARIABLE).as_deref() {
            Some("kitty") if is_tmux => return tmux_passes().then_some(Self::KittyInTmux),
            Some("kitty") => return Some(Self::Kitty),
            Some("iterm2") => return Some(Self::Iterm),
            Some("sixel") => return Some(Self::Sixel),
            Some(_) => return None,
            None => {}
        }
        let term = variable("TERM").unwrap_or_default();
        let program = variable("TERM_PROGRAM").unwrap_or_default();
        if is_tmux {
            // tmux says its own name in the others. Konsole has no characters for cells of an image.
            let is_kitty = ["KITTY_WINDOW_ID", "GHOSTTY_RESOURCES_DIR"];
            let is_kitty = is_kitty.iter().any(|name| variable(name).is_some());
            return (is_kitty && tmux_passes()).then_some(Self::KittyInTmux);
        }
        if term.starts_with("screen") || term.starts_with("tmux") {
            return None;
        }
        let is_kitty = variable("KITTY_WINDOW_ID").is_some()
            || matches!(term.as_str(), "xterm-kitty" | "xterm-ghostty")
            || program == "ghostty"
            || variable("KONSOLE_VERSION").is_some();
        let is_iterm = matches!(program.as_str(), "iTerm.app" | "WezTerm" | "mintty")
            || variable("LC_TERMINAL").as_deref() == Some("iTerm2");
        let is_sixel =
            ["foot", "mlterm", "contour", "yaft"].iter().any(|name| term.starts_with(name));
        match (is_kitty, is_iterm, is_sixel) {
            (true, ..) => Some(Self::Kitty),
            (_, true, _) => Some(Self::Iterm),
            (.., true) => Some(Self::Sixel),
            _ => None,
        }
    }

    /// Returns the bytes that draw this file in at most `columns` columns; `None` if the terminal cannot draw it.
    pub(crate) fn draw(
        self,
        file: &[u8],
        columns: usize,
        cell_pixels: Option<u32>,
    ) -> Option<String> {
        let format = ImageFormat::of(file).filter(|_| file.len() <= MAX_DRAWN_BYTES)?;
        let pixels = cell_pixels.unwrap_or(DEFAULT_CELL_PIXELS);
        let room = u32::try_from(columns).unwrap_or(u32::MAX).saturating_mul(pixels);
        match (self, format) {
            (Self::Kitty, ImageFormat::Png(width, _)) => {
                let columns = (width > room).then(|| format!(",c={columns}"));
                let keys = format!("a=T,f=100,q=2{},", columns.unwrap_or_default());
                Some(chunks(file, &keys).concat())
            }
            (Self::KittyInTmux, ImageFormat::Png(width, height)) => {
                Some(tmux::draw(file, (width, height), columns, cell_pixels))
            }
            (Self::Sixel, ImageFormat::Png(..)) => sixel::draw(file, usize::try_from(room).ok()?),
            (Self::Kitty | Self::KittyInTmux | Self::Sixel, ImageFormat::JpegOrGif) => None,
            (Self::Iterm, format) => {
                let fits = matches!(format, ImageFormat::Png(width, _) if width <= room);
                let width = if fits { "auto" } else { "100%" };
                let size = file.len();
                let data = STANDARD.encode(file);
                Some(format!("\u{1b}]1337;File=inline=1;size={size};width={width}:{data}\u{7}"))
            }
        }
    }
}

// === impl ImageFormat ===

impl ImageFormat {
    /// Returns the format that the first bytes show. The sender's media type does not count.
    fn of(file: &[u8]) -> Option<Self> {
        if let Some(header) = file.strip_prefix(PNG_SIGNATURE) {
            // The length and the name of the first chunk, then width and height.
            let number = |at: usize| {
                let bytes = header.get(at..at + 4)?;
                Some(u32::from_be_bytes(bytes.try_into().ok()?))
            };
            let (width, height) = (number(8)?, number(12)?);
            let is_drawn = header.get(4..8) == Some(b"IHDR")
                && (1..=MAX_DRAWN_PIXELS).contains(&width)
                && (1..=MAX_DRAWN_PIXELS).contains(&height);
            return is_drawn.then_some(Self::Png(width, height));
        }
        let is_other = file.starts_with(b"\xff\xd8\xff") || file.starts_with(b"GIF8");
        is_other.then_some(Self::JpegOrGif)
    }
}

/// The sequences of the Kitty protocol: a PNG in pieces, the first with these keys.
fn chunks(file: &[u8], keys: &str) -> Vec<String> {
    let data = STANDARD.encode(file);
    let (mut rest, mut keys) = (data.as_str(), keys);
    let mut sequences = Vec::new();
    loop {
        let (piece, next) = rest.split_at(rest.len().min(KITTY_CHUNK_BYTES));
        let more = u8::from(!next.is_empty());
        sequences.push(format!("\u{1b}_G{keys}m={more};{piece}\u{1b}\\"));
        if next.is_empty() {
            return sequences;
        }
        (rest, keys) = (next, "");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draw(protocol: ImageProtocol, file: &[u8]) -> Option<String> {
        protocol.draw(file, 80, Some(10))
    }

    fn png(width: u32, height: u32, more: usize) -> Vec<u8> {
        let mut file = PNG_SIGNATURE.to_vec();
        file.extend(13_u32.to_be_bytes());
        file.extend(b"IHDR");
        file.extend(width.to_be_bytes());
        file.extend(height.to_be_bytes());
        file.extend(std::iter::repeat_n(0, more));
        file
    }

    #[test]
    fn a_png_travels_in_pieces_and_no_wider_than_the_terminal() {
        let small = draw(ImageProtocol::Kitty, &png(48, 48, 9)).unwrap();
        assert!(small.starts_with("\u{1b}_Ga=T,f=100,q=2,m=0;"), "{small}");
        let large = draw(ImageProtocol::Kitty, &png(1_000, 48, 9_000)).unwrap();
        assert!(large.starts_with("\u{1b}_Ga=T,f=100,q=2,c=80,m=1;"));
        assert_eq!(large.matches("\u{1b}_G").count(), 3);
        assert!(large.contains("\u{1b}_Gm=0;") && large.ends_with("\u{1b}\\"));
        let iterm = draw(ImageProtocol::Iterm, &png(1_000, 48, 9)).unwrap();
        assert!(iterm.starts_with("\u{1b}]1337;File=inline=1;size=33;width=100%:"), "{iterm}");
    }

    #[test]
    fn what_is_no_image_or_too_large_is_not_drawn() {
        for file in
            [&b"\x1b]52;c;AA\x07"[..], b"", b"\x89PNG\r\n\x1a\n", &png(9_000, 1, 9), &png(0, 1, 9)]
        {
            assert_eq!(draw(ImageProtocol::Kitty, file), None);
            assert_eq!(draw(ImageProtocol::Iterm, file), None);
        }
        assert_eq!(draw(ImageProtocol::Kitty, b"\xff\xd8\xff\xe0"), None, "it takes PNG only");
        assert!(draw(ImageProtocol::Iterm, b"\xff\xd8\xff\xe0").is_some());
    }

    #[test]
    fn the_terminal_is_known_by_its_variables() {
        let find_in = |set: &[(&str, &str)], passes: bool| {
            let variable = |name: &str| {
                let value = set.iter().find(|(known, _)| *known == name);
                value.map(|(_, value)| (*value).to_owned())
            };
            ImageProtocol::find(variable, || passes)
        };
        let find = |set: &[(&str, &str)]| find_in(set, false);
        assert_eq!(find(&[("TERM", "xterm-256color")]), None);
        assert_eq!(find(&[("TERM", "xterm-kitty")]), Some(ImageProtocol::Kitty));
        assert_eq!(find(&[("TERM_PROGRAM", "iTerm.app")]), Some(ImageProtocol::Iterm));
        assert_eq!(find(&[("TERM", "foot-extra")]), Some(ImageProtocol::Sixel));
        assert_eq!(find(&[("TERM", "xterm"), (VARIABLE, "sixel")]), Some(ImageProtocol::Sixel));
        assert_eq!(find(&[("TERM", "xterm-kitty"), ("TMUX", "x")]), None);
        let kitty = [("TERM", "tmux-256color"), ("TMUX", "x"), ("KITTY_WINDOW_ID", "1")];
        assert_eq!((find(&kitty), find_in(&kitty, true)), (None, Some(ImageProtocol::KittyInTmux)));
        assert_eq!(find_in(&[("TERM", "tmux-256color"), ("TMUX", "x")], true), None);
        assert_eq!(find(&[("TMUX", "x"), (VARIABLE, "kitty")]), None);
        assert_eq!(find(&[("TERM", "xterm-kitty"), (VARIABLE, "none")]), None);
        assert_eq!(find(&[("TMUX", "x"), (VARIABLE, "iterm2")]), Some(ImageProtocol::Iterm));
    }
}
