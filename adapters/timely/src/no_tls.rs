//! In the place of `tls`, where the crate is compiled without it: there is nothing of these types.

use std::io;
use std::net::TcpStream;
use std::path::Path;

#[derive(Debug)]
pub(crate) enum Identity {}

impl Identity {
    pub(crate) fn read(_host: &str, _authority: &Path) -> Result<Self, String> {
        Err("pag-timely was compiled without encryption; compile it with the feature tls".to_owned())
    }

    pub(crate) fn meet(&self, _stream: &TcpStream) -> io::Result<Session> {
        match *self {}
    }
}

#[derive(Debug)]
pub(crate) enum Session {}

impl Session {
    pub(crate) fn write_all(&self, _stream: &TcpStream, _content: &[u8]) -> io::Result<()> {
        match *self {}
    }

    pub(crate) fn read_exact(&self, _stream: &TcpStream, _content: &mut [u8]) -> io::Result<()> {
        match *self {}
    }
}
