//! Copies of elements whatever they mean: between any layouts, by element width.

use bytemuck::Pod;
use smallvec::SmallVec;

use crate::array::{Layout, Shape, Strides, collapse};
use crate::cpu::Strided;
use crate::cpu::tile::TILE;

/// Elements a thread takes at a time.
pub(super) const CHUNK: usize = 16 * TILE;

/// Reads the elements of an array of any layout in row-major order.
pub(super) struct Reader<'a, T> {
    data: &'a [T],
    offset: usize,
    shape: Shape,
    strides: Strides,
}

impl<'a, T: Pod> Reader<'a, T> {
    pub(super) fn new(array: Strided<'a, T>) -> Reader<'a, T> {
        let layout = &array.meta.layout;
        let (shape, mut strides) = collapse(&[layout]);
        let strides = strides.pop().unwrap_or_default();
        Reader { data: array.data, offset: layout.offset, shape, strides }
    }

    /// Copies the elements from number `start` on until `target` is full.
    pub(super) fn read(&self, start: usize, target: &mut [T]) {
        let Some(last) = self.shape.len().checked_sub(1) else {
            target.fill(self.data[self.offset]);
            return;
        };
        if last == 0 && self.strides[0] == 1 {
            let first = self.offset + start;
            target.copy_from_slice(&self.data[first..first + target.len()]);
            return;
        }
        let mut index: SmallVec<[usize; 8]> = SmallVec::from_elem(0, self.shape.len());
        let mut rest = start;
        let mut position = self.offset as isize;
        for axis in (0..self.shape.len()).rev() {
            index[axis] = rest % self.shape[axis];
            rest /= self.shape[axis];
            position += index[axis] as isize * self.strides[axis];
        }
        let stride = self.strides[last];
        let mut done = 0;
        while done < target.len() {
            let run = (self.shape[last] - index[last]).min(target.len() - done);
            let out = &mut target[done..done + run];
            let first = position as usize;
            match stride {
                1 => out.copy_from_slice(&self.data[first..first + run]),
                0 => out.fill(self.data[first]),
                _ => {
                    let mut at = position;
                    for value in out {
                        *value = self.data[at as usize];
                        at += stride;
                    }
                }
            }
            done += run;
            // Carry into the outer axes.
            position += stride * run as isize;
            index[last] += run;
            let mut axis = last;
            while index[axis] == self.shape[axis] && axis > 0 {
                position -= self.strides[axis] * self.shape[axis] as isize;
                index[axis] = 0;
                axis -= 1;
                index[axis] += 1;
                position += self.strides[axis];
            }
        }
    }
}

/// The part of a row-major array of `shape` that starts at `start` and has lengths `counts`.
pub(super) fn slot(shape: &[usize], start: &[usize], counts: &[usize]) -> Layout {
    let mut layout = Layout::contiguous(shape);
    for (axis, (&start, &count)) in start.iter().zip(counts).enumerate() {
        layout.offset += start * layout.strides[axis] as usize;
        layout.shape[axis] = count;
    }
    layout
}

/// Axes that the GPU's copy kernel can walk after merging.
pub(super) const MOST_AXES: usize = 9;

/// Whether the GPU can copy between these layouts without making one row-major first.
pub(super) fn few_axes(from: &Layout, to: &Layout) -> bool {
    collapse(&[from, to]).0.len() <= MOST_AXES
}

#[cfg(feature = "gpu")]
pub(super) use gpu::copy_into;

#[cfg(feature = "gpu")]
mod gpu {
    use std::fmt::Write;

    use super::{Layout, MOST_AXES, Shape, Strides, collapse};
    use crate::array::DType;
    use crate::error::Result;
    use crate::gpu::{Bind, GpuCall, Kernel, grid, packed};

    const WORKGROUP: usize = 256;

    /// Records the copy of an input into the part of output 0 that `slot` describes.
    pub(crate) fn copy_into(call: &mut GpuCall<'_>, input: usize, slot: &Layout) -> Result<()> {
        let meta = call.meta(input);
        let (shape, strides) = collapse(&[&meta.layout, slot]);
        if shape.contains(&0) {
            return Ok(());
        }
        if shape.len() > MOST_AXES {
            return Err(call.not_on_device("the layouts have too many axes; copy the input first"));
        }
        let mut copy = Copy {
            size: meta.dtype.size(),
            shape,
            from: (meta.layout.offset, strides[0].clone()),
            to: (slot.offset, strides[1].clone()),
        };
        while copy.size < 4 && copy.widen() {}
        let dtype = [DType::U8, DType::U16, DType::U32, DType::U64][copy.size.ilog2() as usize];
        let rank = copy.shape.len();
        let count: usize = copy.shape.iter().product();
        let mut params = vec![count as u32, copy.from.0 as u32, copy.to.0 as u32];
        params.extend(copy.shape.iter().map(|&length| length as u32));
        params.extend(copy.from.1.iter().chain(&copy.to.1).map(|&stride| stride as i32 as u32));
        call.launch(&Kernel {
            variant: format!("copy {dtype} rank {rank}"),
            source: &|| source(dtype, rank),
            bindings: &[Bind::Input(input), Bind::Output(0)],
            params: &params,
            groups: grid(count.div_ceil(WORKGROUP)),
        })
    }

    /// A copy between two collapsed layouts, in units of `size` bytes.
    struct Copy {
        size: usize,
        shape: Shape,
        from: (usize, Strides),
        to: (usize, Strides),
    }

    impl Copy {
        /// Doubles the unit where pairs of elements stay together and aligned on both sides, so
        /// that fewer threads merge into words that others write too.
        fn widen(&mut self) -> bool {
            let Some(last) = self.shape.len().checked_sub(1) else { return false };
            let fits = |(offset, strides): &(usize, Strides)| {
                offset % 2 == 0
                    && strides[last] == 1
                    && strides[..last].iter().all(|stride| stride % 2 == 0)
            };
            if !self.shape[last].is_multiple_of(2) || !fits(&self.from) || !fits(&self.to) {
                return false;
            }
            self.size *= 2;
            self.shape[last] /= 2;
            for (offset, strides) in [&mut self.from, &mut self.to] {
                *offset /= 2;
                strides[..last].iter_mut().for_each(|stride| *stride /= 2);
            }
            true
        }
    }

    fn source(dtype: DType, rank: usize) -> String {
        let mut text = String::from(packed::PACKING);
        let words: Vec<String> = (0..3 + 3 * rank).map(|word| format!("w{word}: u32")).collect();
        let _ =
            writeln!(text, "struct Params {{ {} }}\nvar<immediate> p: Params;", words.join(", "));
        text.push_str(&packed::reader("x", 0, dtype));
        text.push_str(&packed::writer("out", 1, dtype));
        text.push_str("fn copy(i: u32) {\nvar rest = i;\nvar src = p.w1;\nvar dst = p.w2;\n");
        for axis in (0..rank).rev() {
            let (length, from, to) = (3 + axis, 3 + rank + axis, 3 + 2 * rank + axis);
            // Strides may be negative; unsigned arithmetic wraps to the same place.
            let _ = writeln!(
                text,
                "let i{axis} = rest % p.w{length}; rest = rest / p.w{length};\n\
                 src += i{axis} * p.w{from}; dst += i{axis} * p.w{to};"
            );
        }
        text.push_str("out_set(dst, x(src));\n}\n");
        text.push_str(include_str!("copy.wgsl"));
        text
    }
}
