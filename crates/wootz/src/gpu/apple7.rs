//! What the GPU of an M1 takes. `metal-sim` compiles this file, too.

/// How large a launch is, in what GPUs limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaunchSize {
    /// Bytes of threadgroup memory, where Metal rounds each variable up to 16.
    pub threadgroup_bytes: u64,
    /// Threads of a threadgroup.
    pub threads: u64,
    /// Buffers that Metal binds, with those for parameters and for the sizes of the others.
    pub buffers: u64,
    /// Threadgroups in the longest dimension.
    pub groups: u64,
    /// Bytes of parameters.
    pub param_bytes: u64,
}

/// The largest launch of Metal's GPU family Apple 7, that of the M1, through wgpu. Later families take
/// no less.
pub const APPLE7: LaunchSize = LaunchSize {
    threadgroup_bytes: 32 << 10,
    threads: 1024,
    buffers: 31,
    groups: 65_535,
    param_bytes: 4096,
};

impl LaunchSize {
    /// Whether it is within limits. The error names every figure that is too large.
    pub fn within(&self, limits: &LaunchSize) -> Result<(), String> {
        let figures = [
            (self.threadgroup_bytes, limits.threadgroup_bytes, "bytes of threadgroup memory"),
            (self.threads, limits.threads, "threads in a threadgroup"),
            (self.buffers, limits.buffers, "buffers"),
            (self.groups, limits.groups, "threadgroups in a dimension"),
            (self.param_bytes, limits.param_bytes, "bytes of parameters"),
        ];
        let large = figures.iter().filter(|(figure, limit, _)| figure > limit);
        let text: Vec<String> =
            large.map(|(figure, limit, what)| format!("{figure} {what}, not {limit}")).collect();
        if text.is_empty() { Ok(()) } else { Err(text.join("; ")) }
    }
}
