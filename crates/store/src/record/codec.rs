//! Integers, lengths and checksums: the bottom of the persisted form.

use bytes::Bytes;

use super::{FORMAT_VERSION, OUTLINED_VERSION};

/// Bytes of the checksum at the end of every frame and row.
pub(super) const CHECKSUM_BYTES: usize = 4;
const MAX_VARINT_BYTES: u32 = 10;

/// Why stored bytes cannot be read, as a fragment: "it ends too early".
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Damage(pub(super) &'static str);

pub(super) type DecodeResult<T> = Result<T, Damage>;

/// Takes fields from the front of stored bytes. Every length is checked against the remaining bytes.
#[derive(Clone, Debug)]
pub(super) struct FieldReader<'a> {
    bytes: &'a Bytes,
    at: usize,
    end: usize,
}

pub(super) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

/// Adds a signed integer. Small numbers of either sign are short.
pub(super) fn put_signed(out: &mut Vec<u8>, value: i64) {
    put_varint(out, ((value << 1) ^ (value >> 63)).cast_unsigned());
}

pub(super) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Closes a frame or row with the checksum of all bytes before.
pub(super) fn put_checksum(out: &mut Vec<u8>) {
    let sum = crc32c::crc32c(out);
    out.extend_from_slice(&sum.to_le_bytes());
}

/// A stored frame or row without its checksum. With it, the checksum of the whole would be the same for all of them.
pub(crate) fn without_checksum(bytes: &[u8]) -> &[u8] {
    bytes.split_last_chunk::<CHECKSUM_BYTES>().map_or(bytes, |(content, _)| content)
}

/// Checks that the last bytes are the checksum of the bytes before. Returns the length without it.
pub(super) fn check_checksum(bytes: &[u8]) -> DecodeResult<usize> {
    let Some((content, sum)) = bytes.split_last_chunk::<CHECKSUM_BYTES>() else {
        return Err(Damage("it is shorter than its checksum"));
    };
    if crc32c::crc32c(content) != u32::from_le_bytes(*sum) {
        return Err(Damage("its checksum does not match"));
    }
    Ok(content.len())
}

// === impl FieldReader ===

impl<'a> FieldReader<'a> {
    /// Reads the range `at..end` of these bytes.
    pub(super) fn new(bytes: &'a Bytes, at: usize, end: usize) -> Self {
        Self { bytes, at, end: end.min(bytes.len()) }
    }

    /// Takes the version byte. Fails for a version that this program does not read.
    pub(super) fn version(&mut self) -> DecodeResult<()> {
        self.version_in(&[FORMAT_VERSION])
    }

    /// The same for a frame.
    pub(super) fn frame_version(&mut self) -> DecodeResult<()> {
        self.version_in(&[FORMAT_VERSION, OUTLINED_VERSION])
    }

    fn version_in(&mut self, known: &[u8]) -> DecodeResult<()> {
        if known.contains(&self.byte()?) {
            return Ok(());
        }
        Err(Damage("its format version is not known"))
    }

    /// Whether all bytes were taken.
    pub(super) fn is_at_end(&self) -> bool {
        self.at >= self.end
    }

    pub(super) fn finish(&self) -> DecodeResult<()> {
        if self.is_at_end() { Ok(()) } else { Err(Damage("it has bytes behind its end")) }
    }

    /// The next `length` bytes as a part of the underlying bytes, without copying.
    pub(super) fn shared(&mut self, length: usize) -> DecodeResult<Bytes> {
        let from = self.at;
        self.skip(length)?;
        Ok(self.bytes.slice(from..self.at))
    }

    /// All remaining bytes, without copying.
    pub(super) fn rest(&mut self) -> Bytes {
        let from = self.at.min(self.end);
        self.at = self.end;
        self.bytes.slice(from..self.end)
    }

    pub(super) fn slice(&mut self, length: usize) -> DecodeResult<&'a [u8]> {
        let from = self.at;
        self.skip(length)?;
        self.bytes.get(from..self.at).ok_or(Damage("it ends too early"))
    }

    /// A reader of the next `length` bytes alone.
    pub(super) fn part(&mut self, length: usize) -> DecodeResult<Self> {
        let from = self.at;
        self.skip(length)?;
        Ok(Self { bytes: self.bytes, at: from, end: self.at })
    }

    /// The next byte, without taking it.
    pub(super) fn peek(&self) -> DecodeResult<u8> {
        self.rest_slice().first().copied().ok_or(Damage("it ends too early"))
    }

    pub(super) fn byte(&mut self) -> DecodeResult<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Ok(byte)
    }

    fn rest_slice(&self) -> &'a [u8] {
        self.bytes.get(self.at..self.end).unwrap_or_default()
    }

    pub(super) fn array<const N: usize>(&mut self) -> DecodeResult<[u8; N]> {
        self.slice(N)?.try_into().map_err(|_| Damage("it ends too early"))
    }

    pub(super) fn varint(&mut self) -> DecodeResult<u64> {
        // Most integers have one byte: lengths, tags, numbers of short runs.
        if let Some(byte @ 0..0x80) = self.rest_slice().first().copied() {
            self.at += 1;
            return Ok(u64::from(byte));
        }
        let mut value = 0_u64;
        for index in 0..MAX_VARINT_BYTES {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if index == MAX_VARINT_BYTES - 1 && bits > 1 {
                break;
            }
            value |= bits << (7 * index);
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Damage("it holds an integer of more than 64 bits"))
    }

    pub(super) fn signed(&mut self) -> DecodeResult<i64> {
        let value = self.varint()?;
        Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    /// A length that does not exceed the remaining bytes.
    pub(super) fn length(&mut self) -> DecodeResult<usize> {
        let length = usize::try_from(self.varint()?).unwrap_or(usize::MAX);
        if length > self.end.saturating_sub(self.at) {
            return Err(Damage("it names more bytes than it has"));
        }
        Ok(length)
    }

    fn skip(&mut self, length: usize) -> DecodeResult<()> {
        if length > self.end.saturating_sub(self.at) {
            return Err(Damage("it ends too early"));
        }
        self.at += length;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_read_back_at_their_edges() {
        let edges = [0, 1, -1, 63, 64, -64, -65, i64::MAX, i64::MIN];
        let mut out = Vec::new();
        for value in edges {
            put_signed(&mut out, value);
            put_varint(&mut out, value.cast_unsigned());
        }
        let bytes = Bytes::from(out);
        let mut input = FieldReader::new(&bytes, 0, bytes.len());
        for value in edges {
            assert_eq!(input.signed(), Ok(value));
            assert_eq!(input.varint(), Ok(value.cast_unsigned()));
        }
        assert_eq!(input.finish(), Ok(()));
    }

    #[test]
    fn an_integer_above_64_bits_is_damage() {
        let bytes = Bytes::from(vec![0xff; 11]);
        assert!(FieldReader::new(&bytes, 0, 11).varint().is_err());
        let bytes = Bytes::from([&[0xff; 9][..], &[0x02]].concat());
        assert!(FieldReader::new(&bytes, 0, 10).varint().is_err());
    }

    #[test]
    fn a_length_beyond_the_end_is_damage() {
        let mut out = Vec::new();
        put_varint(&mut out, u64::MAX);
        let bytes = Bytes::from(out);
        assert!(FieldReader::new(&bytes, 0, bytes.len()).length().is_err());
    }
}
