//! One connection to a follower, encrypted where it leads to another machine.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use crate::send::Checked;
use crate::tls::Session;

/// How long the other side may take to greet.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How long a connection may take to come about, to each address of the host: nothing ends that earlier.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// A connection that one thread reads from while another one writes to it.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    tls: Option<Session>,
}

impl Connection {
    /// Connects; where the follower has to show a certificate, it has shown one that is good.
    ///
    /// Before anything is said, `keep` gets what ends the connection from another thread.
    pub(crate) fn open(target: &Checked, keep: impl FnOnce(TcpStream) -> io::Result<()>) -> io::Result<Self> {
        let stream = connect(&target.addresses)?;
        keep(stream.try_clone()?)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        let tls = target.tls.as_ref().map(|identity| identity.meet(&stream)).transpose()?;
        Ok(Self { stream, tls })
    }

    /// Waits for as long as it takes: where nothing is sent nothing is acknowledged, and a program may take its time.
    pub(crate) fn be_patient(&self) -> io::Result<()> {
        self.stream.set_read_timeout(None)
    }

    /// Ends the connection.
    pub(crate) fn close(&self) {
        // One that is broken has ended.
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    pub(crate) fn write_all(&self, content: &[u8]) -> io::Result<()> {
        if let Some(tls) = &self.tls {
            return tls.write_all(&self.stream, content);
        }
        (&self.stream).write_all(content)
    }

    pub(crate) fn read_exact(&self, content: &mut [u8]) -> io::Result<()> {
        if let Some(tls) = &self.tls {
            return tls.read_exact(&self.stream, content);
        }
        (&self.stream).read_exact(content)
    }
}

/// Connects to the first address where somebody is.
fn connect(addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    let mut refused = io::ErrorKind::AddrNotAvailable.into();
    for address in addresses {
        match TcpStream::connect_timeout(address, CONNECT_TIMEOUT) {
            Ok(stream) => return Ok(stream),
            Err(error) => refused = error,
        }
    }
    Err(refused)
}
