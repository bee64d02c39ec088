//! The UDP socket of probes: packets leave by the interface and with the source address that they are to try.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::AsRawFd as _;

use nix::libc;
use nix::sys::socket::{ControlMessage, MsgFlags, SockaddrIn, sendmsg};
use tokio::io::Interest;
use tokio::net::UdpSocket;

use super::probe::{LENGTH, PROBE_PORT};

/// The socket, in the network namespace of the thread that opened it.
#[derive(Debug)]
pub(super) struct ProbeSocket(UdpSocket);

impl ProbeSocket {
    /// Opens it on all of this machine's IPv4 addresses.
    pub(super) fn open() -> io::Result<Self> {
        let socket = std::net::UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PROBE_PORT))?;
        socket.set_nonblocking(true)?;
        UdpSocket::from_std(socket).map(Self)
    }

    /// Sends a packet to another node's probe port. One that cannot be sent now is lost, as any may be.
    pub(super) fn send(&self, packet: &[u8], to: Ipv4Addr, source: Option<Ipv4Addr>, dev: Option<u32>) -> io::Result<()> {
        let mut info: libc::in_pktinfo =
            libc::in_pktinfo { ipi_ifindex: 0, ipi_spec_dst: libc::in_addr { s_addr: 0 }, ipi_addr: libc::in_addr { s_addr: 0 } };
        info.ipi_ifindex = dev.and_then(|dev| i32::try_from(dev).ok()).unwrap_or(0);
        info.ipi_spec_dst.s_addr = u32::from_ne_bytes(source.unwrap_or(Ipv4Addr::UNSPECIFIED).octets());
        let to = SockaddrIn::from(SocketAddrV4::new(to, PROBE_PORT));
        self.0.try_io(Interest::WRITABLE, || {
            let control = [ControlMessage::Ipv4PacketInfo(&info)];
            sendmsg(self.0.as_raw_fd(), &[io::IoSlice::new(packet)], &control, MsgFlags::empty(), Some(&to))?;
            Ok(())
        })
    }

    /// The next packet that is as long as a probe, with its source; longer ones are cut to one byte more and so known as none.
    pub(super) async fn receive(&self) -> io::Result<([u8; LENGTH], SocketAddr)> {
        let mut buffer = [0; LENGTH + 1];
        loop {
            let (length, source) = self.0.recv_from(&mut buffer).await?;
            if let (LENGTH, Some(packet)) = (length, buffer.first_chunk()) {
                return Ok((*packet, source));
            }
        }
    }
}
