//! Where the windows of a convolution lie. Spatial axes are always three here: those that are
//! missing come first and have length 1.

use crate::array::Meta;

/// How a window moves, for three spatial axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    /// Spatial axes that there really are; the last of the three.
    pub(super) rank: usize,
    pub(super) stride: [usize; 3],
    /// Zeros before the first element. If negative, elements that are cut off.
    pub(super) low: [isize; 3],
    pub(super) kernel_dilation: [usize; 3],
    pub(super) input_dilation: [usize; 3],
    pub(super) groups: usize,
    pub(super) flip: bool,
}

/// Lengths of the last axes of three, the others being 1.
pub(super) fn three<T: Copy>(lengths: &[T], missing: T) -> [T; 3] {
    let mut three = [missing; 3];
    let first = 3 - lengths.len().min(3);
    for (to, &length) in three[first..].iter_mut().zip(lengths) {
        *to = length;
    }
    three
}

/// A value for each of three axes.
pub(super) fn each_axis<T>(value: impl FnMut(usize) -> T) -> [T; 3] {
    std::array::from_fn(value)
}

/// A convolution: the window and all sizes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Geometry {
    pub(super) window: Window,
    pub(super) batch: usize,
    pub(super) input: [usize; 3],
    pub(super) kernel: [usize; 3],
    pub(super) output: [usize; 3],
    /// Channels of the input in a group.
    pub(super) channels: usize,
    /// Channels of the output in a group.
    pub(super) outputs: usize,
}

impl Geometry {
    /// Of an input `[batch, …, channels]` and the number of outputs of all groups.
    pub(super) fn new(
        window: Window,
        input: &Meta,
        outputs: usize,
        kernel: [usize; 3],
        output: [usize; 3],
    ) -> Geometry {
        let shape = input.shape();
        let (groups, last) = (window.groups.max(1), shape.len() - 1);
        Geometry {
            window,
            batch: shape[0],
            input: three(&shape[1..last], 1),
            kernel,
            output,
            channels: shape[last] / groups,
            outputs: outputs / groups,
        }
    }

    /// Elements of a window.
    pub(super) fn taps(&self) -> usize {
        self.kernel.iter().product()
    }

    /// Products that an output element sums.
    pub(super) fn depth(&self) -> usize {
        self.taps() * self.channels
    }

    /// Places along an axis from a window's first to its last.
    pub(super) fn reach(&self, axis: usize) -> usize {
        self.kernel[axis]
            .saturating_sub(1)
            .saturating_mul(self.window.kernel_dilation[axis])
            .saturating_add(1)
    }

    /// Whether all windows lie in the input, and no zeros between its elements.
    pub(super) fn within(&self) -> bool {
        (0..3).all(|axis| {
            let last = (self.output[axis].max(1) - 1).saturating_mul(self.window.stride[axis]);
            let start = -self.window.low[axis];
            start >= 0
                && (self.window.input_dilation[axis] == 1 || self.input[axis] == 1)
                && last.saturating_add(start as usize).saturating_add(self.reach(axis))
                    <= self.input[axis]
        })
    }

    /// Windows of the whole batch.
    pub(super) fn positions(&self) -> usize {
        self.batch * self.output.iter().product::<usize>()
    }

    /// Channels of the input in all groups.
    pub(super) fn all_channels(&self) -> usize {
        self.channels * self.window.groups
    }

    /// Channels of the output in all groups.
    pub(super) fn all_outputs(&self) -> usize {
        self.outputs * self.window.groups
    }

    /// Where the elements of the kernel lie in a window, from the window's first element on.
    pub(super) fn tap_distances(&self) -> Vec<[isize; 3]> {
        let ([_, rows, columns], taps) = (self.kernel, self.taps());
        let distance = |tap: usize| {
            let tap = if self.window.flip { taps - 1 - tap } else { tap };
            let place = [tap / (rows * columns), tap / columns % rows, tap % columns];
            each_axis(|axis| (place[axis] * self.window.kernel_dilation[axis]) as isize)
        };
        (0..taps).map(distance).collect()
    }

    /// The element of the batch that a window looks at, and where the window begins, before zeros
    /// and elements that were cut off are taken into account.
    pub(super) fn position(&self, position: usize) -> (usize, [isize; 3]) {
        let [planes, rows, columns] = self.output;
        let place =
            [position / (rows * columns) % planes, position / columns % rows, position % columns];
        let start =
            |axis: usize| (place[axis] * self.window.stride[axis]) as isize - self.window.low[axis];
        (position / (planes * rows * columns), each_axis(start))
    }

    /// The number of the input's element at a place, if there is one and not a zero.
    #[inline(always)]
    pub(super) fn element(&self, batch: usize, place: [isize; 3]) -> Option<usize> {
        let mut number = batch;
        for (axis, at) in place.into_iter().enumerate() {
            let step = self.window.input_dilation[axis];
            let mut at = usize::try_from(at).ok()?;
            if step > 1 {
                if !at.is_multiple_of(step) {
                    return None;
                }
                at /= step;
            }
            if at >= self.input[axis] {
                return None;
            }
            number = number * self.input[axis] + at;
        }
        Some(number)
    }
}
