//! A consistent copy of the store.

use std::io::Read as _;

use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error, Right};

use super::{NativeCall, NativeRoute};
use crate::core::audit::AuditEvent;
use crate::http::body::ReplyBody;
use crate::http::reply::Reply;
use crate::route::{Access, ResponseContent, RouteResponse, Verb};

/// How much of the copy is sent at once, in bytes.
const PIECE_BYTES: usize = 256 * 1024;

pub(crate) const ROUTES: &[NativeRoute] = &[NativeRoute::base(|call| Box::pin(back_up(call)))
    .verb(Verb::Post)
    .path("/api/v1/backup")
    .access(Access::Right(Right::Server))
    .new_sign_in()
    .describe(
        "back_up",
        "A consistent copy of the store of all tenants, made while the server runs",
    )
    .answers(&[RouteResponse {
        status: 200,
        about: "The copy, for `trilogue restore`.",
        content: ResponseContent::Other("application/octet-stream"),
    }])
    .errors(&[Code::InvalidRequest])];

async fn back_up(call: NativeCall) -> Result<Reply> {
    // The folder has mode 0700 and is removed when the response is complete or aborted.
    let folder = tempfile::Builder::new()
        .prefix("trilogue-backup-")
        .tempdir()
        .map_err(|error| write_error(&error))?;
    let path = folder.path().join("backup");
    call.state.admin.backup(&path).await?;
    call.audit(AuditEvent::BackupMade, "store", "");
    let file = std::fs::File::open(&path).map_err(|error| write_error(&error))?;
    let length = file.metadata().map_err(|error| write_error(&error))?.len();
    let pieces = futures_util::stream::unfold((file, folder), |(mut file, folder)| async move {
        let read = tokio::task::spawn_blocking(move || {
            let mut piece = vec![0; PIECE_BYTES];
            let read = file.read(&mut piece);
            (file, piece, read)
        });
        match read.await {
            Ok((_, _, Ok(0))) => None,
            Ok((file, mut piece, Ok(read))) => {
                piece.truncate(read);
                Some((Ok(Bytes::from(piece)), (file, folder)))
            }
            Ok((file, _, Err(error))) => Some((Err(error), (file, folder))),
            Err(_) => None,
        }
    });
    Ok(Reply::new(StatusCode::OK, ReplyBody::pieces(pieces))
        .header(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"))
        .header_text(header::CONTENT_LENGTH, &length.to_string()))
}

fn write_error(error: &std::io::Error) -> Error {
    Error::new(Code::Internal, format!("the backup cannot be written: {error}"))
}
