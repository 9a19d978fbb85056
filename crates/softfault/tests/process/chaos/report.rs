//! The report on a thread that dies of SIGSEGV or SIGBUS, by the process itself: it may
//! not be dumped, since it changes its credentials.

use std::io::Write;

/// Says where it died, and lets it die.
pub fn install() {
    // SAFETY: the handler has the form that SA_SIGINFO asks for.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = on_death as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESETHAND;
        libc::sigaction(libc::SIGSEGV, &action, core::ptr::null_mut());
    }
}

extern "C" fn on_death(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel's arguments of such a handler.
    let (addr, code) = unsafe { ((*info).si_addr(), (*info).si_code) };
    let mut error = std::io::stderr();
    let _ = writeln!(error, "DEATH by signal {signal}, code {code}, at {addr:?}");
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: as above.
        let registers = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
        for (name, at) in [
            ("rip", libc::REG_RIP),
            ("rsp", libc::REG_RSP),
            ("rbp", libc::REG_RBP),
        ] {
            let _ = writeln!(error, "{name} {:x}", registers[at as usize]);
        }
    }
    let _ = context;
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let _ = writeln!(error, "{maps}");
}
