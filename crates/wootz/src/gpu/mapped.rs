//! Regions of mapped files as buffers: without a copy where GPU and CPU share their memory, else
//! uploaded once.
//!
//! Metal can take whole pages of the process as a buffer; a tensor in a file begins anywhere. So the
//! buffer is the pages around the region, the region begins at [`MappedBuffer::start`] in it, and
//! an array sees it through the offset of its layout, which kernels add to every index. Two other ways
//! were not taken. An offset of the binding would have to be a multiple of 32 bytes (256 elsewhere),
//! which tensors in files are not. One buffer for a whole file would meet the limit of a binding
//! and, in layouts, that of 2³² elements; as a buffer of its own a tensor only has to fit these itself.
//! Pages that two tensors share are in both their buffers, which is fine as nothing writes them.
//!
//! An offset counts elements. A region that does not begin at a multiple of its element's size
//! (older safetensors files have such) is uploaded. So is everything on Vulkan: wgpu cannot import
//! memory there.

use std::ops::Range;
use std::sync::Arc;

use memmap2::Mmap;

use super::buffer::GpuBuffer;
use super::device::Gpu;
use super::system;
use crate::error::{Error, Result};

/// A region of a mapped file that kernels can read, and never write.
#[derive(Debug)]
#[non_exhaustive]
pub struct MappedBuffer {
    /// The memory. A kernel that binds it for writing, and an upload into it, are errors, also
    /// where it is a copy. It keeps the mapping if it is shared.
    pub buffer: GpuBuffer,
    /// Where the region begins in the buffer, in bytes; a multiple of the element's size. What lies
    /// before and behind the region is unspecified.
    pub start: u64,
    /// Whether the buffer is the file's own memory.
    pub shared: bool,
}

impl GpuBuffer {
    /// The bytes `range` of a mapped file, elements of `element` bytes, for kernels to read.
    pub fn from_mapped(
        gpu: &Arc<Gpu>,
        map: &Arc<Mmap>,
        range: Range<usize>,
        element: usize,
    ) -> Result<MappedBuffer> {
        const OP: &str = "from_mapped";
        let Some(bytes) = map.get(range.clone()) else {
            return Err(Error::argument(
                OP,
                "range",
                format!("a range within the file's {} bytes", map.len()),
                format!("{range:?}"),
            ));
        };
        if element == 0 {
            return Err(Error::argument(OP, "element", "at least 1 byte", element));
        }
        if let Some(page) = system::shared_page(gpu)
            && let Some(pages) = Pages::around(bytes, page)
            && pages.skip.is_multiple_of(element)
            && pages.addresses.len() as u64 <= gpu.max_binding_bytes()
        {
            let make = || system::share(gpu, map, pages.addresses.clone());
            if let Some(buffer) = gpu.adopt(pages.addresses.len() as u64, make)? {
                return Ok(MappedBuffer { buffer, start: pages.skip as u64, shared: true });
            }
        }
        let mut buffer = gpu.alloc(bytes.len() as u64)?;
        gpu.upload(&buffer, 0, bytes)?;
        buffer.forbid_writes();
        Ok(MappedBuffer { buffer, start: 0, shared: false })
    }
}

/// Whole pages around some bytes.
#[derive(Debug, PartialEq)]
struct Pages {
    addresses: Range<usize>,
    /// Where the bytes begin in them.
    skip: usize,
}

impl Pages {
    /// The pages of `page` bytes, a power of two, that hold any of these bytes; nothing if there
    /// are none. A mapping consists of whole pages, so these are mapped to their ends.
    fn around(bytes: &[u8], page: usize) -> Option<Pages> {
        let Range { start, end } = bytes.as_ptr_range();
        let (start, end) = (start as usize, end as usize);
        let first = start & !(page - 1);
        let addresses = first..end.checked_next_multiple_of(page)?;
        (start < end).then_some(Pages { addresses, skip: start - first })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::open;
    use super::super::{Access, GpuOptions, KernelKey, Launch};
    use super::*;

    /// A mapping of a file that holds the numbers of its bytes.
    fn file(length: usize) -> Arc<Mmap> {
        let path = std::env::temp_dir().join(format!("wootz-mapped-{}", std::process::id()));
        let path = path.with_extension(format!("{length}"));
        std::fs::write(&path, (0..length).map(|i| i as u8).collect::<Vec<_>>()).unwrap();
        let opened = std::fs::File::open(&path).unwrap();
        // SAFETY: nobody else knows the file, and it is never changed.
        let map = unsafe { Mmap::map(&opened) }.unwrap();
        // The mapping stays; on Windows so does the file.
        let _ = std::fs::remove_file(&path);
        Arc::new(map)
    }

    #[test]
    fn a_region_of_a_mapped_file_is_read_at_any_offset() {
        let Some(gpu) = open(&GpuOptions::default()) else { return };
        let map = file(40_000);
        for range in [0..40_000, 0..1, 1..6, 7..8_193, 16_384..32_768, 39_997..40_000, 5..5] {
            for element in [1, 2, 4] {
                let made = GpuBuffer::from_mapped(&gpu, &map, range.clone(), element).unwrap();
                assert!(made.start.is_multiple_of(element as u64), "{range:?} {element}");
                assert!(made.shared || made.start == 0);
                let length = range.len() as u64;
                assert!(made.buffer.size() >= made.start + length);
                let got = gpu.download(&made.buffer, made.start, length).unwrap();
                assert_eq!(got, map[range.clone()], "{range:?} {element}");
            }
        }
    }

    #[test]
    fn the_mapping_may_go_before_the_buffer() {
        let Some(gpu) = open(&GpuOptions::default()) else { return };
        let map = file(20_000);
        let made = GpuBuffer::from_mapped(&gpu, &map, 64..16_448, 4).unwrap();
        let expected = map[64..16_448].to_vec();
        drop(map);
        assert_eq!(gpu.download(&made.buffer, made.start, 16_384).unwrap(), expected);
    }

    #[test]
    fn mapped_memory_is_counted_limited_and_given_back() {
        let Some(gpu) = open(&GpuOptions::default()) else { return };
        let map = file(70_000);
        let uploaded = gpu.counters().uploaded_bytes;
        let made = GpuBuffer::from_mapped(&gpu, &map, 3..65_539, 1).unwrap();
        let memory = gpu.memory();
        assert!(memory.active >= 65_536 && memory.peak == memory.active, "{memory:?}");
        assert_eq!(memory.mapped, if made.shared { memory.active } else { 0 });
        let sent = gpu.counters().uploaded_bytes - uploaded;
        assert_eq!(sent, if made.shared { 0 } else { 65_536 });

        gpu.set_memory_limit(memory.active + 65_535);
        let refused = GpuBuffer::from_mapped(&gpu, &map, 0..65_536, 1);
        assert!(matches!(refused, Err(Error::OutOfMemory { .. })), "{refused:?}");
        assert_eq!(gpu.memory().active, memory.active);
        drop(made);
        let after = gpu.memory();
        assert_eq!((after.active, after.mapped), (0, 0));
        assert!(GpuBuffer::from_mapped(&gpu, &map, 0..65_536, 1).is_ok());
    }

    #[test]
    fn mapped_memory_is_never_written() {
        let Some(gpu) = open(&GpuOptions::default()) else { return };
        let map = file(4_096);
        let made = GpuBuffer::from_mapped(&gpu, &map, 0..64, 4).unwrap();
        assert!(made.buffer.is_read_only());
        assert!(matches!(gpu.upload(&made.buffer, 0, &[0; 4]), Err(Error::Argument { .. })));
        let source = "@group(0) @binding(0) var<storage, read_write> y: array<u32>;
            @compute @workgroup_size(1) fn main() { y[0] = 1u; }";
        let buffer = Arc::new(made.buffer);
        let refused = gpu.recorder().launch(&Launch {
            key: KernelKey::new("test", "writes mapped memory"),
            source: &|| source.to_string(),
            bindings: &[(&buffer, Access::ReadWrite)],
            params: &[],
            groups: [1; 3],
            status: false,
        });
        assert!(matches!(refused, Err(Error::Argument { .. })), "{refused:?}");
        assert_eq!(gpu.download(&buffer, made.start, 64).unwrap(), map[..64]);
    }

    #[test]
    fn a_range_outside_the_file_and_a_size_over_the_limit_are_errors() {
        let options = GpuOptions { max_binding_bytes: Some(4_096), ..Default::default() };
        let Some(gpu) = open(&options) else { return };
        let map = file(10_000);
        let get = |range| GpuBuffer::from_mapped(&gpu, &map, range, 1);
        assert!(matches!(get(0..10_001), Err(Error::Argument { .. })));
        assert!(matches!(get(20_000..20_001), Err(Error::Argument { .. })));
        assert!(matches!(get(0..5_000), Err(Error::SizeOverflow { .. })));
        assert!(GpuBuffer::from_mapped(&gpu, &map, 0..4, 0).is_err());
        assert!(get(9_000..10_000).is_ok());
    }

    #[test]
    fn pages_enclose_bytes() {
        let memory = vec![0u8; 4096];
        let base = memory.as_ptr() as usize;
        let page = 256;
        let first = base.next_multiple_of(page) - base;
        let pages = |range: Range<usize>| {
            let around = Pages::around(&memory[range.start + first..range.end + first], page)?;
            let from_first = |address: usize| address - base - first;
            let Range { start, end } = around.addresses;
            Some((from_first(start)..from_first(end), around.skip))
        };
        assert_eq!(pages(0..256), Some((0..256, 0)));
        assert_eq!(pages(0..257), Some((0..512, 0)));
        assert_eq!(pages(255..257), Some((0..512, 255)));
        assert_eq!(pages(300..301), Some((256..512, 44)));
        assert_eq!(pages(300..300), None);
    }
}
