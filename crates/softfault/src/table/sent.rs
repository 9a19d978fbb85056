//! A file of the table that its server sends in a message (SCM_RIGHTS, [unix(7)]): the way to a number where pidfd_getfd(2) of a
//! thread is refused, before Linux 6.9 or by a filter. It is slower, and not for a fault handler: a socket is made for it.
//!
//! [unix(7)]: https://man7.org/linux/man-pages/man7/unix.7.html

use super::guarded::{Guarded, above, own};
use super::identity::{Identity, close_if, identity_of};
use super::raw;
use core::mem::size_of;

/// A message's only control data: a file.
#[repr(C)]
struct Control {
    head: libc::cmsghdr,
    number: i32,
}

/// Bytes of it without its end, as the kernel has them.
const CONTROL_BYTES: usize = size_of::<libc::cmsghdr>() + size_of::<i32>();

impl Control {
    fn of(number: i32) -> Self {
        // SAFETY: zeros are a valid one.
        let mut head: libc::cmsghdr = unsafe { core::mem::zeroed() };
        head.cmsg_len = CONTROL_BYTES as _;
        head.cmsg_level = libc::SOL_SOCKET;
        head.cmsg_type = libc::SCM_RIGHTS;
        Self { head, number }
    }
}

/// The address of a socket.
type Name = (libc::sockaddr_un, libc::socklen_t);

/// A number of this file in the calling thread's table, closed by exec. The error is an errno.
pub(super) fn number_of(guarded: &Guarded, identity: Identity) -> Result<i32, i32> {
    let _blocked = raw::Blocked::all();
    let kind = (libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK) as usize;
    let arguments = [libc::AF_UNIX as usize, kind, 0, 0, 0, 0];
    // SAFETY: makes a descriptor, of numbers.
    let here = unsafe { own(libc::SYS_socket, arguments) }?;
    let socket = identity_of(here)?;
    let number = name(here).and_then(|name| {
        // SAFETY: as above.
        let there = unsafe { Guarded::open(libc::SYS_socket, arguments) }?;
        send(&there, &name, guarded.number())?;
        receive(here, identity)
    });
    close_if(here, socket);
    number
}

/// Gives a socket a name, which the kernel chooses, and which is no file's.
fn name(socket: i32) -> Result<Name, i32> {
    // SAFETY: zeros are a valid one.
    let mut name: libc::sockaddr_un = unsafe { core::mem::zeroed() };
    name.sun_family = libc::AF_UNIX as _;
    let family = size_of::<libc::sa_family_t>();
    let mut bytes = size_of::<libc::sockaddr_un>() as libc::socklen_t;
    let at = (&raw mut name).addr();
    let bind = [socket as usize, at, family, 0, 0, 0];
    let ask = [socket as usize, at, (&raw mut bytes).addr(), 0, 0, 0];
    // SAFETY: the name is here, and there is room for any.
    unsafe {
        raw::answered(raw::call(libc::SYS_bind, &bind))?;
        raw::answered(raw::call(libc::SYS_getsockname, &ask))?;
    }
    Ok((name, bytes))
}

/// Has the server send a file, which has this number in its table. There is room for one message, so that this does not wait.
fn send(socket: &Guarded, (name, bytes): &Name, number: i32) -> Result<(), i32> {
    let mut control = Control::of(number);
    let byte = 0_u8;
    let mut vector = libc::iovec {
        iov_base: (&raw const byte).cast_mut().cast(),
        iov_len: 1,
    };
    // SAFETY: zeros are a valid one.
    let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
    message.msg_name = core::ptr::from_ref(name).cast_mut().cast();
    message.msg_namelen = *bytes;
    (message.msg_iov, message.msg_iovlen) = (&raw mut vector, 1);
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = size_of::<Control>() as _;
    let flags = (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as usize;
    // SAFETY: the message and all that it names is here until the call returns.
    unsafe {
        socket.call(
            libc::SYS_sendmsg,
            [(&raw const message).addr(), flags, 0, 0, 0],
        )
    }?;
    Ok(())
}

/// Takes the file out of a message. Any process may have sent one: what is not the file goes.
fn receive(socket: i32, identity: Identity) -> Result<i32, i32> {
    let mut control = Control::of(-1);
    let mut byte = 0_u8;
    let mut vector = libc::iovec {
        iov_base: (&raw mut byte).cast(),
        iov_len: 1,
    };
    // SAFETY: zeros are a valid one.
    let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut vector, 1);
    let flags = (libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT) as usize;
    loop {
        control.number = -1;
        message.msg_control = (&raw mut control).cast();
        // Room for one file: others of a message are not taken.
        message.msg_controllen = CONTROL_BYTES as _;
        let args = [socket as usize, (&raw mut message).addr(), flags, 0, 0, 0];
        // SAFETY: the message and all that it names is here.
        raw::answered(unsafe { raw::call(libc::SYS_recvmsg, &args) })?;
        let is_file = message.msg_controllen as usize >= CONTROL_BYTES
            && control.head.cmsg_level == libc::SOL_SOCKET
            && control.head.cmsg_type == libc::SCM_RIGHTS;
        if !is_file {
            continue;
        }
        match identity_of(control.number) {
            Ok(found) if found == identity => return above(control.number, identity),
            Ok(other) => close_if(control.number, other),
            Err(_) => {}
        }
    }
}
