//! Arrays of doubles addressed by index lists: slow and plain.

/// An array of doubles, row-major.
#[derive(Clone, Debug)]
pub(crate) struct Tensor {
    pub(crate) shape: Vec<usize>,
    pub(crate) data: Vec<f64>,
}

impl Tensor {
    /// The array whose element at each index is what `value` says.
    pub(crate) fn from_fn(shape: &[usize], mut value: impl FnMut(&[usize]) -> f64) -> Tensor {
        let data = indices(shape).iter().map(|index| value(index)).collect();
        Tensor { shape: shape.to_vec(), data }
    }

    pub(crate) fn at(&self, index: &[usize]) -> f64 {
        self.data[self.flat(index)]
    }

    pub(crate) fn flat(&self, index: &[usize]) -> usize {
        index.iter().zip(&self.shape).fold(0, |flat, (i, n)| flat * n + i)
    }

    /// The elements along `axis` through `index`.
    pub(crate) fn line(&self, index: &[usize], axis: usize) -> Vec<f64> {
        let mut index = index.to_vec();
        (0..self.shape[axis])
            .map(|i| {
                index[axis] = i;
                self.at(&index)
            })
            .collect()
    }

    /// Reduces axes, which stay with length 1: `combine` sees the elements in row-major order.
    pub(crate) fn reduce(&self, axes: &[usize], combine: impl Fn(&[f64]) -> f64) -> Tensor {
        let mut kept = self.shape.clone();
        axes.iter().for_each(|&axis| kept[axis] = 1);
        let groups: Vec<usize> = (0..self.shape.len())
            .map(|i| if axes.contains(&i) { self.shape[i] } else { 1 })
            .collect();
        let inner = indices(&groups);
        Tensor::from_fn(&kept, |outer| {
            let values: Vec<f64> = (inner.iter())
                .map(|inner| {
                    let index: Vec<usize> = outer.iter().zip(inner).map(|(a, b)| a + b).collect();
                    self.at(&index)
                })
                .collect();
            combine(&values)
        })
    }

    /// Applies a function to each line along `axis`, which keeps or changes its length.
    pub(crate) fn map_lines(&self, axis: usize, f: impl Fn(&[f64]) -> Vec<f64>) -> Tensor {
        let mut outer = self.shape.clone();
        outer[axis] = 1;
        let lines: Vec<(Vec<usize>, Vec<f64>)> =
            indices(&outer).into_iter().map(|i| (i.clone(), f(&self.line(&i, axis)))).collect();
        let mut shape = self.shape.clone();
        shape[axis] = lines.first().map_or(shape[axis], |(_, line)| line.len());
        let mut result = Tensor { data: vec![0.0; shape.iter().product()], shape };
        for (mut index, line) in lines {
            for (i, value) in line.into_iter().enumerate() {
                index[axis] = i;
                let flat = result.flat(&index);
                result.data[flat] = value;
            }
        }
        result
    }

    pub(crate) fn reshaped(mut self, shape: &[usize]) -> Tensor {
        assert_eq!(self.data.len(), shape.iter().product::<usize>());
        self.shape = shape.to_vec();
        self
    }

    /// The element of this array under `index` of an array it is broadcast to.
    pub(crate) fn broadcast_at(&self, index: &[usize]) -> f64 {
        let lead = index.len() - self.shape.len();
        let own: Vec<usize> = (self.shape.iter().zip(&index[lead..]))
            .map(|(&n, &i)| if n == 1 { 0 } else { i })
            .collect();
        self.at(&own)
    }
}

/// All indices of a shape in row-major order.
pub(crate) fn indices(shape: &[usize]) -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new()];
    for &length in shape {
        all = (all.into_iter())
            .flat_map(|index| {
                (0..length).map(move |i| index.iter().copied().chain([i]).collect::<Vec<_>>())
            })
            .collect();
    }
    all
}

/// The shape that two shapes broadcast to.
pub(crate) fn broadcast(a: &[usize], b: &[usize]) -> Vec<usize> {
    let rank = a.len().max(b.len());
    let length = |shape: &[usize], axis: usize| {
        (axis + shape.len()).checked_sub(rank).map_or(1, |axis| shape[axis])
    };
    (0..rank)
        .map(|axis| match (length(a, axis), length(b, axis)) {
            (1, other) => other,
            (own, _) => own,
        })
        .collect()
}
