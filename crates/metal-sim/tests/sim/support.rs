//! One way to build a kernel and launch it.

use std::path::Path;

use metal_sim::{Build, Cache, Failure, Kernel, Launch, Library, Order, Report, Toolchain, Worker};

pub(crate) const PLAIN: Build = Build { checked: false, fast_math: false, counting: false };
pub(crate) const CHECKED: Build = Build { checked: true, ..PLAIN };
pub(crate) const FAST: Build = Build { fast_math: true, ..PLAIN };
pub(crate) const COUNTING: Build = Build { counting: true, ..PLAIN };
pub(crate) const BUILDS: [Build; 4] = [PLAIN, CHECKED, FAST, COUNTING];
pub(crate) const ORDERS: [Order; 3] = [Order::Forward, Order::Reverse, Order::Shuffled(7)];

/// The cache of the tests. Without clang they are left out, which is a failure in CI.
pub(crate) fn cache() -> Option<Cache> {
    match Toolchain::find() {
        Ok(toolchain) => {
            let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("metal-sim");
            Some(Cache::open(&folder, toolchain).unwrap())
        }
        Err(reason) if std::env::var_os("CI").is_none() => {
            eprintln!("SKIPPED: {reason}");
            None
        }
        Err(reason) => panic!("{reason}"),
    }
}

/// A launch of one kernel over some memory.
pub(crate) struct Case<'a> {
    pub(crate) kernel: Kernel,
    pub(crate) params: &'a [u32],
    pub(crate) groups: [u32; 3],
    /// The bindings' bytes, and which of them are written.
    pub(crate) memory: Vec<(Vec<u8>, bool)>,
}

impl Case<'_> {
    pub(crate) fn wgsl<'a>(
        text: &str,
        params: &'a [u32],
        groups: u32,
        memory: Vec<(Vec<u8>, bool)>,
    ) -> Case<'a> {
        Case { kernel: Kernel::wgsl("test", text), params, groups: [groups, 1, 1], memory }
    }

    /// Runs it and gives the memory afterwards.
    pub(crate) fn run(
        &self,
        cache: &Cache,
        build: Build,
        order: Order,
    ) -> Result<(Vec<Vec<u8>>, Report), Failure> {
        let library = Library::build(cache, std::slice::from_ref(&self.kernel), build)
            .unwrap_or_else(|error| panic!("{error}"));
        let launch = Launch {
            kernel: library.kernel("test").unwrap().clone(),
            params: self.params.to_vec(),
            groups: self.groups,
            bindings: self.memory.iter().enumerate().map(|(i, (_, w))| (i, *w)).collect(),
        };
        let mut memory = self.memory.iter().map(|(bytes, _)| bytes.clone()).collect::<Vec<_>>();
        let mut worker = Worker::new(cache).unwrap();
        worker.timeout = 2;
        let report = worker.run(&[launch], &mut memory, order)?;
        Ok((memory, report))
    }

    /// Runs it in every build and order; all must give these bytes in a binding.
    pub(crate) fn gives(&self, binding: usize, want: &[u8]) {
        let Some(cache) = cache() else { return };
        for build in BUILDS {
            for order in ORDERS {
                let (memory, _) = self
                    .run(&cache, build, order)
                    .unwrap_or_else(|failure| panic!("{build:?} {order:?}: {failure}"));
                assert_eq!(memory[binding], want, "{build:?} {order:?}");
            }
        }
    }
}

pub(crate) fn floats(values: impl IntoIterator<Item = f32>) -> Vec<u8> {
    values.into_iter().flat_map(f32::to_le_bytes).collect()
}

pub(crate) fn words(values: impl IntoIterator<Item = u32>) -> Vec<u8> {
    values.into_iter().flat_map(u32::to_le_bytes).collect()
}

pub(crate) fn to_floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect()
}

pub(crate) fn zeros(bytes: usize) -> Vec<u8> {
    vec![0; bytes]
}
