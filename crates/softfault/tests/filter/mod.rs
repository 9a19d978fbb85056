//! A filter of system calls: those that it denies answer an errno (`seccomp(2)`).

use libc::{
    BPF_ABS, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, c_long, sock_filter, sock_fprog,
};

const fn code(class: u32, size_or_op: u32, mode: u32) -> u16 {
    (class | size_or_op | mode) as u16
}

/// Denies `calls` to all threads of this process, and to all children, from now on.
pub fn deny(calls: &[c_long], errno: i32) {
    let statement = |code, k| sock_filter {
        code,
        jt: 0,
        jf: 0,
        k,
    };
    let answer = libc::SECCOMP_RET_ERRNO | (errno as u32 & libc::SECCOMP_RET_DATA);
    // The number of the call is the first word of `seccomp_data`.
    let mut program = vec![statement(code(BPF_LD, BPF_W, BPF_ABS), 0)];
    for &call in calls {
        let is_it = code(BPF_JMP, BPF_JEQ, BPF_K);
        let skip = |k| sock_filter {
            code: is_it,
            jt: 0,
            jf: 1,
            k,
        };
        program.push(skip(call as u32));
        program.push(statement(code(BPF_RET, 0, BPF_K), answer));
    }
    program.push(statement(code(BPF_RET, 0, BPF_K), libc::SECCOMP_RET_ALLOW));
    let program = sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the program is there for the call.
    let installed = unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_TSYNC,
            &raw const program,
        )
    };
    assert_eq!(installed, 0, "{}", std::io::Error::last_os_error());
}
