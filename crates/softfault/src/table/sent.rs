//! A file of the table that its server sends in a message (SCM_RIGHTS, [unix(7)]): the way to a number where pidfd_getfd(2) of a
//! thread is refused, before Linux 6.9 or by a filter. It is slower, and not for a fault handler: sockets are made for it.
//!
//! ```text
//!   the process             the server
//!                           there: has a name, which the kernel chose
//!   here: connected to it
//!   here: has a name
//!                           sends the file to that
//! ```
//!
//! Any process may send to a name that is no file's; but to a socket that is connected only its peer may, and ours is so before it has a
//! name. The two are in one network namespace: a thread that is in another than the server gets no file.
//!
//! [unix(7)]: https://man7.org/linux/man-pages/man7/unix.7.html

use super::guarded::{Guarded, above_the_first, own};
use super::identity::{close_if, identity_of};
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
#[derive(Clone, Copy)]
pub(super) struct Name(pub(super) libc::sockaddr_un, pub(super) libc::socklen_t);

impl Name {
    /// One that the kernel chooses, and which is no file's.
    fn any() -> Self {
        // SAFETY: zeros are a valid one.
        let mut name: libc::sockaddr_un = unsafe { core::mem::zeroed() };
        name.sun_family = libc::AF_UNIX as _;
        Self(name, size_of::<libc::sa_family_t>() as _)
    }

    /// The arguments of bind(2) and connect(2) behind the socket.
    fn args(&self) -> [usize; 5] {
        [(&raw const self.0).addr(), self.1 as usize, 0, 0, 0]
    }

    /// Of getsockname(2), which fills it.
    fn fill_args(&mut self) -> [usize; 5] {
        self.1 = size_of::<libc::sockaddr_un>() as _;
        [(&raw mut self.0).addr(), (&raw mut self.1).addr(), 0, 0, 0]
    }
}

#[cfg(test)]
std::thread_local! {
    /// The work of others before the file is sent.
    pub(super) static BEFORE: core::cell::Cell<fn(&Name)> = const { core::cell::Cell::new(|_| ()) };
}

/// A number of this file in the calling thread's table, closed by exec. The error is an errno.
pub(super) fn number_of(guarded: &Guarded) -> Result<i32, i32> {
    let kind = (libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK) as usize;
    let arguments = [libc::AF_UNIX as usize, kind, 0, 0, 0, 0];
    let (any, mut name) = (Name::any(), Name::any());
    let then = [
        (libc::SYS_bind, any.args()),
        (libc::SYS_getsockname, name.fill_args()),
    ];
    // This may use the heap, whose faults need signals.
    // SAFETY: makes a descriptor, of numbers; the names are here, and there is room for any.
    let (there, [bound, told]) = unsafe { Guarded::open_and((libc::SYS_socket, arguments), then) }?;
    bound.and(told)?;
    let _blocked = raw::Blocked::all();
    // SAFETY: makes a descriptor, of numbers.
    let here = unsafe { own(libc::SYS_socket, arguments) }?;
    let socket = identity_of(here)?;
    let number = meet(here, name).and_then(|name| {
        #[cfg(test)]
        BEFORE.get()(&name);
        send(&there, &name, guarded.number())?;
        above_the_first(here, || receive(here))
    });
    close_if(here, socket);
    number
}

/// Connects a socket to the one of this name, then gives it a name of its own.
fn meet(socket: i32, peer: Name) -> Result<Name, i32> {
    let (any, mut name) = (Name::any(), peer);
    let calls = [
        (libc::SYS_connect, peer.args()),
        (libc::SYS_bind, any.args()),
        (libc::SYS_getsockname, name.fill_args()),
    ];
    for (call, [a, b, c, ..]) in calls {
        // SAFETY: the names are here, and there is room for any.
        raw::answered(unsafe { raw::call(call, &[socket as usize, a, b, c, 0, 0]) })?;
    }
    Ok(name)
}

/// Has the server send a file, which has this number in its table. There is room for one message, so that this does not wait.
fn send(socket: &Guarded, Name(name, bytes): &Name, number: i32) -> Result<(), i32> {
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

/// Takes the file out of the message.
fn receive(socket: i32) -> Result<i32, i32> {
    let mut control = Control::of(-1);
    let mut byte = 0_u8;
    let mut vector = libc::iovec {
        iov_base: (&raw mut byte).cast(),
        iov_len: 1,
    };
    // SAFETY: zeros are a valid one.
    let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut vector, 1);
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = CONTROL_BYTES as _;
    let flags = (libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT) as usize;
    let args = [socket as usize, (&raw mut message).addr(), flags, 0, 0, 0];
    // SAFETY: the message and all that it names is here.
    raw::answered(unsafe { raw::call(libc::SYS_recvmsg, &args) })?;
    // Without a number left there is none.
    match message.msg_controllen as usize >= CONTROL_BYTES {
        true => Ok(control.number),
        false => Err(libc::EMFILE),
    }
}
