//! Logins of programs on other machines: a program gets a short code, a person approves the code on the server, and the program collects its token.
//!
//! The program proves with a secret that it is the one that got the code. Nothing is stored: a login ends with the server, after some minutes, or soon after its
//! token was collected.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error, Timestamp, lock};
use trilogue_store::rows::TokenRow;

use super::authenticator::Caller;
use super::failed_sign_ins::{FailedSignIns, network, seconds};
use super::secret::{hash_secret, new_secret};

/// How long a login can be approved and collected.
pub(crate) const LOGIN_LIFE: Duration = Duration::from_secs(10 * 60);
/// How often a program should ask whether its login is approved.
pub(crate) const LOGIN_INTERVAL: Duration = Duration::from_secs(2);
/// How long a program gets the same token again, because the first response may have been lost.
const COLLECT_AGAIN: Duration = Duration::from_secs(60);
/// The most logins that are open at once.
const MAX_LOGINS: usize = 256;
/// The most logins of one address that are open at once. Behind a proxy, all programs have one address.
const MAX_LOGINS_PER_ADDRESS: usize = 32;
/// How often a program can ask for the token of one login.
const MAX_COLLECTIONS: u32 = 1_000;
/// The most unknown codes from one address in a minute.
const MAX_WRONG_CODES: u32 = 10;
/// The letters of codes: none of them looks like another one, and they form no words.
const LETTERS: &[u8; 16] = b"BCDFGHJKLMNPQRST";
/// The letters of a code, without the hyphen in its middle.
const CODE_LETTERS: usize = 8;

/// The open logins.
#[derive(Debug)]
pub(crate) struct Logins {
    /// By the hash of the secret.
    open: Mutex<HashMap<[u8; 32], OpenLogin>>,
    wrong_codes: FailedSignIns,
}

#[derive(Debug)]
struct OpenLogin {
    code: String,
    label: String,
    address: Option<IpAddr>,
    expires_at: Timestamp,
    collections: u32,
    /// The token, from its approval on.
    approved: Option<Arc<ApprovedToken>>,
    collected_at: Option<Timestamp>,
}

/// A token that is stored when its program collects it first.
#[derive(Debug)]
pub(crate) struct ApprovedToken {
    pub(crate) row: TokenRow,
    pub(crate) secret: String,
    pub(crate) by: Caller,
}

/// A token that its program collects.
#[derive(Debug)]
pub(crate) struct CollectedToken {
    pub(crate) token: Arc<ApprovedToken>,
    pub(crate) is_first: bool,
}

/// What a program gets when it begins to log in.
#[derive(Debug)]
pub(crate) struct NewLogin {
    pub(crate) code: String,
    pub(crate) secret: String,
    pub(crate) expires_at: Timestamp,
}

/// What a person sees before the approval.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LoginView {
    pub(crate) label: String,
    pub(crate) address: Option<IpAddr>,
    pub(crate) expires_at: Timestamp,
}

// === impl Logins ===

impl Default for Logins {
    fn default() -> Self {
        Self { open: Mutex::default(), wrong_codes: FailedSignIns::new(MAX_WRONG_CODES) }
    }
}

impl Logins {
    /// Begins a login. Errors: `overloaded`.
    pub(crate) fn begin(
        &self,
        label: String,
        address: Option<IpAddr>,
        now: Timestamp,
    ) -> Result<NewLogin> {
        let (code, secret) = (new_code()?, new_secret()?);
        let expires_at = now.after(LOGIN_LIFE);
        let mut open = lock(&self.open);
        open.retain(|_, login| login.is_open(now));
        let of_address = open.values().filter(|it| it.address.map(network) == address.map(network));
        if open.len() >= MAX_LOGINS || of_address.count() >= MAX_LOGINS_PER_ADDRESS {
            return Err(Error::new(Code::Overloaded, "too many logins wait for their approval")
                .hint("approve one of them, or try again in some minutes"));
        }
        // With so few of them, two codes are hardly ever equal.
        if open.values().any(|it| it.code == code) {
            return Err(Error::new(Code::Overloaded, "no code is free now").hint("try again"));
        }
        let login = OpenLogin {
            code: code.clone(),
            label,
            address,
            expires_at,
            collections: 0,
            approved: None,
            collected_at: None,
        };
        open.insert(hash_secret(secret.as_bytes()), login);
        Ok(NewLogin { code, secret, expires_at })
    }

    /// Returns what is known of the login with a code. Errors: `not_found`; `overloaded` after too many unknown codes from one address.
    pub(crate) fn view(
        &self,
        code: &str,
        from: Option<IpAddr>,
        now: Timestamp,
    ) -> Result<LoginView> {
        self.with_code(code, from, now, |login| LoginView {
            label: login.label.clone(),
            address: login.address,
            expires_at: login.expires_at,
        })
    }

    /// Gives a login its token. Errors: those of [`Self::view`].
    pub(crate) fn approve(
        &self,
        code: &str,
        from: Option<IpAddr>,
        now: Timestamp,
        token: ApprovedToken,
    ) -> Result<()> {
        self.with_code(code, from, now, |login| login.approved = Some(Arc::new(token)))
    }

    /// Returns the token of a login, or `None` while it is not approved. Errors: `unauthenticated` for an unknown secret or a login that has ended.
    pub(crate) fn collect(&self, secret: &str, now: Timestamp) -> Result<Option<CollectedToken>> {
        let hash = hash_secret(secret.as_bytes());
        let mut open = lock(&self.open);
        let Some(login) = open.get_mut(&hash).filter(|it| it.is_open(now)) else {
            return Err(login_ended());
        };
        login.collections += 1;
        let is_first = login.collected_at.is_none();
        let collected = login.approved.clone().map(|token| CollectedToken { token, is_first });
        if collected.is_some() {
            login.collected_at.get_or_insert(now);
        }
        if login.collections >= MAX_COLLECTIONS {
            open.remove(&hash);
        }
        Ok(collected)
    }

    /// Ends a login whose token could not be stored.
    pub(crate) fn end(&self, secret: &str) {
        lock(&self.open).remove(&hash_secret(secret.as_bytes()));
    }

    /// Uses the login with a code that is not approved yet.
    fn with_code<T>(
        &self,
        code: &str,
        from: Option<IpAddr>,
        now: Timestamp,
        act: impl FnOnce(&mut OpenLogin) -> T,
    ) -> Result<T> {
        let code = normal_form(code);
        let mut open = lock(&self.open);
        let mut waiting = open.values_mut().filter(|it| it.is_open(now) && it.approved.is_none());
        if let Some(login) = waiting.find(|it| it.code == code) {
            return Ok(act(login));
        }
        // The local socket has no addresses, and its user runs the server.
        match from.and_then(|from| self.wrong_codes.add(from, now)) {
            Some(wait) => {
                Err(Error::new(Code::Overloaded, "too many unknown codes from this address")
                    .hint(format!("try again in {} seconds", seconds(wait))))
            }
            None => Err(Error::new(Code::NotFound, "no login waits with this code")
                .hint("codes are valid for ten minutes; begin again with: trilogue login SERVER")),
        }
    }
}

// === impl OpenLogin ===

impl OpenLogin {
    /// Also over if the clock was set back.
    fn is_open(&self, now: Timestamp) -> bool {
        let is_over = self.collected_at.is_some_and(|at| now >= at.after(COLLECT_AGAIN));
        !is_over && now < self.expires_at && self.expires_at <= now.after(LOGIN_LIFE)
    }
}

/// Returns the error for a program whose login is not there any more.
pub(crate) fn login_ended() -> Error {
    Error::new(Code::Unauthenticated, "the login is not known, was used or has expired")
        .hint("begin again with: trilogue login SERVER")
}

/// Makes a code of 32 random bits, such as `BCDF-GHJK`.
fn new_code() -> Result<String> {
    let random = hash_secret(new_secret()?.as_bytes());
    let letter = |byte: &u8| char::from(LETTERS[usize::from(*byte) % LETTERS.len()]);
    let letters: String = random.iter().take(CODE_LETTERS).map(letter).collect();
    Ok(with_hyphen(&letters))
}

/// Returns a code as it was made: people leave the hyphen out, or write small letters.
fn normal_form(code: &str) -> String {
    let letters = code.chars().filter(char::is_ascii_alphanumeric).take(2 * CODE_LETTERS);
    with_hyphen(&letters.collect::<String>().to_ascii_uppercase())
}

fn with_hyphen(letters: &str) -> String {
    match letters.split_at_checked(CODE_LETTERS / 2) {
        Some((start, end)) => format!("{start}-{end}"),
        None => letters.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_micros(seconds * 1_000_000)
    }

    fn address(last: u8) -> Option<IpAddr> {
        Some(IpAddr::from([192, 0, 2, last]))
    }

    fn begin(logins: &Logins, last: u8, now: i64) -> Result<NewLogin> {
        logins.begin("laptop".to_owned(), address(last), at(now))
    }

    #[test]
    fn open_logins_are_bounded_for_each_address_and_all_together() {
        let logins = Logins::default();
        for _ in 0..MAX_LOGINS_PER_ADDRESS {
            begin(&logins, 1, 0).unwrap();
        }
        assert_eq!(begin(&logins, 1, 0).unwrap_err().code(), Code::Overloaded);
        let others = (0..MAX_LOGINS).filter(|number| {
            let last = u8::try_from(2 + number / MAX_LOGINS_PER_ADDRESS).unwrap();
            begin(&logins, last, 1).is_ok()
        });
        assert_eq!(others.count(), MAX_LOGINS - MAX_LOGINS_PER_ADDRESS);
        // Those that have expired leave their places.
        begin(&logins, 1, 600).unwrap();
        assert_eq!(lock(&logins.open).len(), MAX_LOGINS - MAX_LOGINS_PER_ADDRESS + 1);
    }

    #[test]
    fn a_code_is_found_in_each_spelling_and_not_guessed_without_end() {
        let logins = Logins::default();
        let code = begin(&logins, 1, 0).unwrap().code;
        assert_eq!((code.len(), code.find('-')), (CODE_LETTERS + 1, Some(CODE_LETTERS / 2)));
        for spelling in
            [code.clone(), code.replace('-', ""), code.to_lowercase(), format!(" {code} ")]
        {
            assert_eq!(logins.view(&spelling, address(9), at(1)).unwrap().label, "laptop");
        }
        let wrong = || logins.view("XXXX-XXXX", address(9), at(1)).unwrap_err().code();
        for _ in 0..MAX_WRONG_CODES {
            assert_eq!(wrong(), Code::NotFound);
        }
        assert_eq!(wrong(), Code::Overloaded);
        assert!(logins.view(&code, address(9), at(600)).is_err(), "it has expired");
    }

    #[test]
    fn a_login_that_nobody_approves_can_be_asked_for_a_bounded_number_of_times() {
        let logins = Logins::default();
        let secret = begin(&logins, 1, 0).unwrap().secret;
        let asked = (0..2 * MAX_COLLECTIONS).filter(|_| logins.collect(&secret, at(1)).is_ok());
        assert_eq!(asked.count(), MAX_COLLECTIONS as usize);
        let other = begin(&logins, 1, 0).unwrap().secret;
        assert_eq!(logins.collect(&other, at(600)).unwrap_err().code(), Code::Unauthenticated);
    }
}
