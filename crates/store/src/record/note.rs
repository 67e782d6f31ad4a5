//! Notes between processes: a version byte, a tag, the fields in order. The message around them has the checksum.

use bytes::Bytes;

use super::FORMAT_VERSION;
use super::codec::{Damage, DecodeResult, FieldReader};
use super::field::{Field, fields, variants};
use crate::news::{ChangedRow, PeerMessage, RowChange, ShownQuestion};

fields!(RowChange { tenant, principal, thread, row });
fields!(ShownQuestion { principal, run, interrupt, at });
variants!(ChangedRow:
    0 = Thread, 1 = NoThread, 2 = Run { id, agent, status }, 3 = Interrupt { id, run, is_pending },
);
variants!(PeerMessage: 0 = Rows(rows), 1 = Shown(shown), 2 = Present(threads), 3 = Revoked(hash),);

// === impl PeerMessage ===

impl PeerMessage {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![FORMAT_VERSION];
        self.put(&mut out);
        out
    }

    /// Decodes a note. `None` if another version or another program sent it.
    pub(crate) fn decode(bytes: &Bytes) -> Option<Self> {
        let read = || -> DecodeResult<Self> {
            let mut input = FieldReader::new(bytes, 0, bytes.len());
            input.version()?;
            let note = Self::take(&mut input)?;
            input.finish()?;
            Ok(note)
        };
        read().ok()
    }
}
