//! Where CPython's own structures keep what leads to the function that a thread is in.
//!
//! Of 64-bit builds with a global lock; the figures come from the headers of 3.11.7, 3.12.1 and 3.13.0
//! (they are fixed within a minor version). `python` checks what it reads, so that another build gives
//! no functions and never wrong ones.

/// Byte offsets within CPython's structures.
#[derive(Debug)]
pub struct Layout {
    /// `_PyRuntime.interpreters.main`.
    pub main_interpreter: u64,
    /// `PyInterpreterState.threads.head`.
    pub threads: u64,
    /// `PyThreadState.native_thread_id`.
    pub native_id: usize,
    /// `PyThreadState.cframe` (3.13: the current frame itself).
    pub frame: usize,
    /// `_PyCFrame.current_frame`; None: there is no such step.
    pub through: Option<u64>,
    /// `PyThreadState.datastack_chunk`; the end of what is used of it follows.
    pub chunk: usize,
    /// `_PyInterpreterFrame.f_code` or `.f_executable`.
    pub code: usize,
    /// `_PyInterpreterFrame.previous`.
    pub previous: usize,
    /// `_PyInterpreterFrame.owner`.
    pub owner: usize,
    /// `PyCodeObject.co_firstlineno`.
    pub line: usize,
    /// Bytes before the text of an ASCII string, and of another compact one.
    pub text: [u64; 2],
}

/// An `owner`: the frame is in its generator, and has no `previous` while that does not run.
pub const OF_GENERATOR: u8 = 1;
/// An `owner`: no function, but where C code called into the interpreter (3.12 and later).
pub const OF_C_STACK: u8 = 3;
/// `PyThreadState.next`.
pub const NEXT_THREAD: usize = 8;
/// `PyObject.ob_type`.
pub const TYPE: usize = 8;
/// `PyCodeObject.co_filename` and `.co_qualname`.
pub const FILE_NAME: usize = 112;
pub const QUALIFIED_NAME: usize = 128;
/// `PyASCIIObject.length` and `.state`.
pub const LENGTH: usize = 16;
pub const STATE: usize = 32;
/// So much of each is read at once.
pub const THREAD_BYTES: usize = 320;
pub const FRAME_BYTES: usize = 72;
pub const CODE_BYTES: usize = 136;
pub const TEXT_BYTES: usize = 40;

const V3_11: Layout = Layout {
    main_interpreter: 48,
    threads: 16,
    native_id: 160,
    frame: 56,
    through: Some(8),
    chunk: 296,
    code: 32,
    previous: 48,
    owner: 69,
    line: 72,
    text: [48, 72],
};
const V3_12: Layout = Layout {
    main_interpreter: 48,
    threads: 72,
    native_id: 144,
    frame: 56,
    through: Some(0),
    chunk: 232,
    code: 0,
    previous: 8,
    owner: 70,
    line: 68,
    text: [40, 56],
};
const V3_13: Layout = Layout {
    main_interpreter: 640,
    threads: 7344,
    native_id: 160,
    frame: 72,
    through: None,
    ..V3_12
};

/// The layout of a version as `Py_Version` says it (major << 24 | minor << 16 | …).
pub fn of_version(version: u64) -> Option<&'static Layout> {
    match version >> 16 & 0xFFFF {
        0x030B => Some(&V3_11),
        0x030C => Some(&V3_12),
        0x030D => Some(&V3_13),
        _ => None,
    }
}
