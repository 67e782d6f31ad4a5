//! Documents that all callers can read: equal responses share their bytes.

use std::collections::VecDeque;
use std::sync::Mutex;

use bytes::Bytes;
use trilogue_domain::lock;

/// Documents differ by the host name in the request, and by agent.
const MAX_DOCUMENTS: usize = 32;
const MAX_DOCUMENT_BYTES: usize = 1024 * 1024;

/// The most recently read documents.
#[derive(Debug, Default)]
pub(crate) struct SharedDocuments(Mutex<VecDeque<Bytes>>);

// === impl SharedDocuments ===

impl SharedDocuments {
    /// Returns this document, in the same memory as the last equal one.
    pub(crate) fn share(&self, document: Vec<u8>) -> Bytes {
        if document.len() > MAX_DOCUMENT_BYTES {
            return document.into();
        }
        let mut documents = lock(&self.0);
        if let Some(same) = documents.iter().find(|it| **it == document) {
            return same.clone();
        }
        if documents.len() >= MAX_DOCUMENTS {
            documents.pop_front();
        }
        let document = Bytes::from(document);
        documents.push_back(document.clone());
        document
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_documents_have_one_memory() {
        let documents = SharedDocuments::default();
        let first = documents.share(b"a document".to_vec());
        let other = documents.share(b"another one".to_vec());
        let again = documents.share(b"a document".to_vec());
        assert_eq!(first.as_ptr(), again.as_ptr());
        assert_eq!(&*other, b"another one");
        for number in 0..MAX_DOCUMENTS {
            documents.share(number.to_string().into_bytes());
        }
        assert_eq!(lock(&documents.0).len(), MAX_DOCUMENTS);
    }
}
