//! Ports for servers that restart on the same port.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener};
use std::sync::Mutex;

use anyhow::{Context, Result};

/// Ports below the range that the system uses for outgoing connections, so that a server finds its port free after a restart.
const PORTS: std::ops::Range<u16> = 12_000..32_000;

/// The locks of this process's ports. They are held until the process ends, so that no other test takes the same port, in this run or in another one.
static RESERVED: Mutex<Vec<File>> = Mutex::new(Vec::new());

/// Reserves a free loopback address. No other test gets it while this process lives.
pub fn reserve_address() -> Result<SocketAddr> {
    let user = rustix::process::geteuid().as_raw();
    let folder = std::env::temp_dir().join(format!("trilogue-test-ports-{user}"));
    fs::create_dir_all(&folder)?;
    // Tests run as parallel processes, so each starts its search at a different port.
    let span = u32::from(PORTS.end - PORTS.start);
    let begin = std::process::id() % span;
    let ports = (0..span).filter_map(|step| u16::try_from((begin + step) % span).ok());
    for port in ports.map(|offset| PORTS.start + offset) {
        let lock = File::options()
            .create(true)
            .append(true)
            .open(folder.join(port.to_string()))
            .context("the file of a reserved port")?;
        if lock.try_lock().is_ok() && TcpListener::bind(("127.0.0.1", port)).is_ok() {
            trilogue_domain::lock(&RESERVED).push(lock);
            return Ok(SocketAddr::from(([127, 0, 0, 1], port)));
        }
    }
    anyhow::bail!("no loopback port is free")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_reserved_once() {
        let first = reserve_address().unwrap();
        let other = reserve_address().unwrap();
        assert_ne!(first, other, "the first one is free, and still reserved");
        TcpListener::bind(first).unwrap();
    }
}
