//! Encryption of a connection, by rustls: who reads waits for the network without the lock that who writes needs.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

/// What is read from the network at once.
const READ_BYTES: usize = 16 << 10;

/// Whom to expect: a host, and who has to have signed its certificate.
#[derive(Debug)]
pub(crate) struct Identity {
    host: ServerName<'static>,
    config: Arc<ClientConfig>,
}

impl Identity {
    /// Reads the certificates of the authority, PEM, that a follower at `host` must have been signed by.
    pub(crate) fn read(host: &str, authority: &Path) -> Result<Self, String> {
        let refused = |what: &dyn std::fmt::Display| format!("{}: {what}", authority.display());
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(authority).map_err(|error| refused(&error))? {
            let certificate = certificate.map_err(|error| refused(&error))?;
            roots.add(certificate).map_err(|error| refused(&error))?;
        }
        if roots.is_empty() {
            return Err(refused(&"no certificate is in it"));
        }
        let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let host = ServerName::try_from(host.to_owned()).map_err(|error| format!("{host}: {error}"))?;
        Ok(Self { host, config: Arc::new(config) })
    }

    /// Shakes hands.
    pub(crate) fn meet(&self, mut stream: &TcpStream) -> io::Result<Session> {
        let mut connection =
            ClientConnection::new(Arc::clone(&self.config), self.host.clone()).map_err(io::Error::other)?;
        while connection.is_handshaking() {
            connection.complete_io(&mut stream)?;
        }
        Ok(Session { half: Mutex::new(Half { connection, encrypted: Vec::new() }) })
    }
}

#[derive(Debug)]
struct Half {
    connection: ClientConnection,
    /// What was read from the network, and not decrypted yet.
    encrypted: Vec<u8>,
}

/// One that has shaken hands.
#[derive(Debug)]
pub(crate) struct Session {
    half: Mutex<Half>,
}

impl Session {
    fn lock(&self) -> MutexGuard<'_, Half> {
        self.half.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn write_all(&self, stream: &TcpStream, mut content: &[u8]) -> io::Result<()> {
        let mut half = self.lock();
        while !content.is_empty() {
            let count = half.connection.writer().write(content)?;
            content = &content[count..];
            half.flush(stream)?;
        }
        Ok(())
    }

    pub(crate) fn read_exact(&self, mut stream: &TcpStream, mut content: &mut [u8]) -> io::Result<()> {
        let mut encrypted = vec![0; READ_BYTES];
        while !content.is_empty() {
            let count = self.lock().decrypted(stream, content)?;
            content = &mut content[count..];
            if count == 0 {
                let count = stream.read(&mut encrypted)?;
                if count == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                self.lock().encrypted.extend_from_slice(&encrypted[..count]);
            }
        }
        Ok(())
    }
}

impl Half {
    /// Sends what is encrypted.
    fn flush(&mut self, mut stream: &TcpStream) -> io::Result<()> {
        while self.connection.wants_write() {
            self.connection.write_tls(&mut stream)?;
        }
        Ok(())
    }

    /// Reads what is there; returns how many bytes: 0 where more has to come first.
    fn decrypted(&mut self, stream: &TcpStream, content: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.connection.reader().read(content) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => return Ok(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            if self.encrypted.is_empty() {
                return Ok(0);
            }
            let count = self.connection.read_tls(&mut self.encrypted.as_slice())?;
            self.encrypted.drain(..count);
            self.connection.process_new_packets().map_err(io::Error::other)?;
            // An answer to what is no data, such as a change of keys.
            self.flush(stream)?;
        }
    }
}
