//! Every path against plain loops in f64, for odd sizes and strides, and for equal bits with any
//! number of threads.

use std::fmt::Debug;

use half::{bf16, f16};

use super::*;
use crate::cpu::threads::set_threads;

/// Element types as the tests see them.
trait Tested: GemmElement + PartialEq + Debug {
    /// The largest relative error of one rounding, doubled.
    const EPSILON: f64;
    fn from_f64(x: f64) -> Self;
    fn to_f64(self) -> f64;
}

macro_rules! tested {
    ($t:ty, $epsilon:expr, $from:expr, $to:expr) => {
        impl Tested for $t {
            const EPSILON: f64 = $epsilon;
            fn from_f64(x: f64) -> Self {
                $from(x)
            }
            fn to_f64(self) -> f64 {
                $to(self)
            }
        }
    };
}
tested!(f32, f32::EPSILON as f64, |x| x as f32, |x| x as f64);
tested!(f64, f64::EPSILON, |x| x, |x| x);
tested!(f16, 0.001, f16::from_f64, f16::to_f64);
tested!(bf16, 0.008, bf16::from_f64, bf16::to_f64);

/// The layouts of a matrix of `rows × columns` in a buffer.
const LAYOUTS: [&str; 7] =
    ["rows", "columns", "rows reversed", "both reversed", "one row", "one column", "spread"];

struct Matrix<T> {
    data: Vec<T>,
    offset: usize,
    row_stride: isize,
    column_stride: isize,
}

impl<T: Tested> Matrix<T> {
    fn new(layout: &str, rows: usize, columns: usize, seed: u64) -> Self {
        let (r, c) = (rows as isize, columns as isize);
        let last = (rows * columns).saturating_sub(1);
        let (offset, row_stride, column_stride, len) = match layout {
            "rows" => (3, c, 1, last + 4),
            "columns" => (0, 1, r, last + 1),
            "rows reversed" => (rows.saturating_sub(1) * columns, -c, 1, last + 1),
            "both reversed" => (last, -c, -1, last + 1),
            "one row" => (1, 0, 1, columns + 1),
            "one column" => (0, 1, 0, rows),
            _ => (2, 2 * c + 5, 2, 2 * rows * (2 * columns + 5) + 3),
        };
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let data = (0..len).map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            T::from_f64((state % 2001) as f64 / 1000.0 - 1.0)
        });
        Matrix { data: data.collect(), offset, row_stride, column_stride }
    }

    fn view(&self) -> MatrixRef<'_, T> {
        let Matrix { ref data, offset, row_stride, column_stride } = *self;
        MatrixRef { data: data[..].into(), offset, row_stride, column_stride }
    }

    fn at(&self, i: usize, j: usize) -> f64 {
        let at = self.offset as isize;
        let at = at + i as isize * self.row_stride + j as isize * self.column_stride;
        self.data[at as usize].to_f64()
    }
}

fn compare<T: Tested>(shape: Shape, a: &Matrix<T>, b: &Matrix<T>, c: &[T], case: &str) {
    let Shape { m, n, k } = shape;
    // Plain loops over the largest products would take seconds: look at some columns.
    let step = if m * n * k > 100_000_000 { 61 } else { 1 };
    for i in 0..m {
        for j in (0..n).step_by(step) {
            let (mut sum, mut size) = (0.0, 0.0);
            for p in 0..k {
                let product = a.at(i, p) * b.at(p, j);
                sum += product;
                size += product.abs();
            }
            let got = c[i * n + j].to_f64();
            // One rounding of the result, and one of a Sum for every product.
            let sum_epsilon = if size_of::<T>() == 8 { f64::EPSILON } else { f32::EPSILON as f64 };
            let bound = sum.abs() * T::EPSILON + size * sum_epsilon * (4.0 + (k as f64).sqrt());
            let close = (got - sum).abs() <= bound + f64::MIN_POSITIVE;
            assert!(close, "{case} {m}x{n}x{k} at {i},{j}: got {got}, expected {sum}");
        }
    }
}

/// One product with the given kernels.
fn multiply<T: Tested>(
    kernels: &'static Kernels<T>,
    Shape { m, n, k }: Shape,
    a: MatrixRef<'_, T>,
    b: MatrixRef<'_, T>,
    c: &mut [T],
) -> Result<()> {
    let (a, b) = (&|_| a, &|_| b);
    Product { batch: 1, m, n, k, rows: m, a, b, plus: None }.write_with(kernels, c)
}

/// All kernels that this processor has.
fn all_kernels<T: Tested>() -> impl Iterator<Item = &'static Kernels<T>> {
    T::special().into_iter().flatten().chain([T::portable()])
}

fn gemm<T: Tested>(
    m: usize,
    n: usize,
    k: usize,
    a: MatrixRef<'_, T>,
    b: MatrixRef<'_, T>,
    c: &mut [T],
) -> Result<()> {
    multiply(T::kernels(), Shape { m, n, k }, a, b, c)
}

fn multiply_all<T: Tested>(sizes: &[usize], layouts: &[&str]) {
    for &m in sizes {
        for &n in sizes {
            for &k in sizes {
                for &left in layouts {
                    for &right in layouts {
                        let a = Matrix::<T>::new(left, m, k, 1 + m as u64);
                        let b = Matrix::<T>::new(right, k, n, 7 + n as u64);
                        let shape = Shape { m, n, k };
                        let mut c = vec![T::from_f64(9.0); m * n];
                        for kernels in all_kernels::<T>() {
                            c.fill(T::from_f64(9.0));
                            multiply(kernels, shape, a.view(), b.view(), &mut c).unwrap();
                            let case = format!("{left} by {right}, {} wide", kernels.columns);
                            compare(shape, &a, &b, &c, &case);
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn small_and_odd_sizes_agree_with_plain_loops_in_every_layout() {
    let sizes = [0, 1, 3, 7, 13, 33];
    multiply_all::<f32>(&sizes, &LAYOUTS);
    multiply_all::<f64>(&sizes, &LAYOUTS);
    multiply_all::<f16>(&sizes, &LAYOUTS);
    multiply_all::<bf16>(&sizes, &LAYOUTS);
}

#[test]
fn sizes_around_tiles_agree_with_plain_loops() {
    let sizes = [2, 4, 5, 6, 8, 12, 15, 16, 17, 31];
    multiply_all::<f32>(&sizes, &["rows", "columns"]);
    multiply_all::<f64>(&sizes, &["rows", "columns"]);
    multiply_all::<bf16>(&sizes, &["rows", "columns"]);
}

fn multiply_one<T: Tested>(m: usize, n: usize, k: usize, left: &str, right: &str) {
    let (a, b) = (Matrix::<T>::new(left, m, k, 3), Matrix::<T>::new(right, k, n, 5));
    let mut results = Vec::new();
    for members in [1, 2, 3] {
        set_threads(members);
        let mut c = vec![T::from_f64(9.0); m * n];
        gemm(m, n, k, a.view(), b.view(), &mut c).unwrap();
        results.push(c);
    }
    compare(Shape { m, n, k }, &a, &b, &results[0], &format!("{left} by {right}"));
    assert!(results.iter().all(|c| *c == results[0]), "{m}x{n}x{k}: threads change bits");
}

#[test]
fn large_products_are_right_and_the_same_bits_with_any_number_of_threads() {
    for (left, right) in [("rows", "rows"), ("rows", "columns"), ("columns", "rows reversed")] {
        for (m, n, k) in [(257, 257, 257), (150, 70, 1100), (300, 17, 600), (5, 600, 520)] {
            multiply_one::<f32>(m, n, k, left, right);
            multiply_one::<f64>(m, n, k, left, right);
            multiply_one::<f16>(m, n, k, left, right);
            multiply_one::<bf16>(m, n, k, left, right);
        }
    }
}

#[test]
fn products_cut_into_parts_are_right() {
    // More rows than are packed at once, and `k` longer than is summed at once.
    multiply_one::<f32>(2100, 9, 40, "rows", "rows");
    multiply_one::<bf16>(2100, 9, 40, "columns", "rows");
    multiply_one::<f32>(13, 19, 17000, "rows", "columns");
    multiply_one::<bf16>(13, 19, 17000, "rows", "rows");
    multiply_one::<f16>(5, 8200, 16500, "one column", "one row");
}

#[test]
fn a_few_vectors_are_right_and_the_same_bits_with_any_number_of_threads() {
    for (left, right) in [("rows", "rows"), ("rows", "columns"), ("columns", "rows reversed")] {
        for (m, n, k) in
            [(1, 2500, 700), (2500, 1, 700), (1, 1, 70000), (3, 1100, 257), (900, 4, 130)]
        {
            multiply_one::<f32>(m, n, k, left, right);
            multiply_one::<f64>(m, n, k, left, right);
            multiply_one::<f16>(m, n, k, left, right);
            multiply_one::<bf16>(m, n, k, left, right);
        }
    }
}

#[test]
fn batches_give_what_single_products_give() {
    for (batch, m, n, k) in [
        (0, 2, 2, 2),
        (3, 0, 4, 4),
        (2, 3, 4, 0),
        (300, 5, 6, 7),
        (40, 1, 64, 33),
        (2, 300, 260, 256),
    ] {
        let a = Matrix::<f32>::new("rows", m * batch, k, 1);
        let b = Matrix::<f32>::new("columns", k, n, 2);
        let at = |i: usize| MatrixRef { offset: a.offset + i * m * k, ..a.view() };
        let mut c = vec![9.0; batch * m * n];
        let product = Product { batch, m, n, k, rows: m, a: &at, b: &|_| b.view(), plus: None };
        product.write(&mut c).unwrap();
        for i in 0..batch {
            let mut one = vec![9.0; m * n];
            gemm(m, n, k, at(i), b.view(), &mut one).unwrap();
            assert_eq!(one, c[i * m * n..(i + 1) * m * n]);
        }
    }
}

#[test]
fn views_that_leave_their_buffer_are_errors() {
    let data = [1.0f32; 12];
    let of = |offset, row_stride, column_stride| MatrixRef {
        data: data[..].into(),
        offset,
        row_stride,
        column_stride,
    };
    let mut c = vec![0.0f32; 9];
    assert!(gemm(3, 3, 4, of(0, 4, 1), of(0, 3, 1), &mut c).is_ok());
    assert!(gemm(3, 3, 4, of(1, 4, 1), of(0, 3, 1), &mut c).is_err());
    assert!(gemm(3, 3, 4, of(0, 4, 1), of(0, -3, 1), &mut c).is_err());
    assert!(gemm(3, 3, 4, of(0, isize::MAX, 1), of(0, 3, 1), &mut c).is_err());
    assert!(gemm(3, 3, 4, of(0, isize::MIN, 1), of(0, 3, 1), &mut c).is_err());
    assert!(gemm(3, 3, 4, of(usize::MAX, 4, 1), of(0, 3, 1), &mut c).is_err());
    assert!(gemm(3, 4, 4, of(0, 4, 1), of(0, 3, 1), &mut c).is_err());
    assert!(gemm(usize::MAX, usize::MAX, 0, of(0, 0, 0), of(0, 0, 0), &mut c).is_err());
    // An empty view reads nothing, so it may lie anywhere.
    assert!(gemm(3, 3, 0, of(99, 4, 1), of(99, 3, 1), &mut c).is_ok());
    assert_eq!(c, [0.0; 9]);
    let product = |step: usize, plus: bool| {
        let (a, b, c) = (|i| of(i * step, 4, 1), |_| of(0, 3, 1), |_| of(4, 3, 1));
        let plus = plus.then_some(Plus { alpha: 1.0, beta: 1.0, c: &c });
        let product = Product { batch: 2, m: 3, n: 3, k: 4, rows: 3, a: &a, b: &b, plus };
        product.write(&mut [0.0; 18])
    };
    assert!(product(0, false).is_ok());
    assert!(product(1, false).is_err());
    assert!(product(0, true).is_err());
}

fn one_row<T: Tested>(data: &[T]) -> MatrixRef<'_, T> {
    let row_stride = data.len() as isize;
    MatrixRef { data: data.into(), offset: 0, row_stride, column_stride: 1 }
}

fn one_column<T: Tested>(data: &[T]) -> MatrixRef<'_, T> {
    MatrixRef { data: data.into(), offset: 0, row_stride: 1, column_stride: 1 }
}

#[test]
fn sums_of_narrow_elements_round_once_ties_to_even() {
    // 1 + 2⁻⁸ lies between two bf16 numbers, of which 1 is even; with 2⁻²⁰ more it rounds up.
    let (a, ones) = ([1.0, 0.00390625, 0.000_000_953_674_3].map(bf16::from_f32), [bf16::ONE; 3]);
    for (k, expected) in [(2, 1.0), (3, 1.0078125)] {
        let mut c = [bf16::ZERO];
        gemm(1, 1, k, one_row(&a), one_column(&ones), &mut c).unwrap();
        assert_eq!(c[0].to_f32(), expected);
    }
    for (bits, expected) in
        [(0x7f80_0001, 0x7fc0), (0x7f7f_ffff, 0x7f80), (0xff80_0000, 0xff80), (0x8000_0000, 0x8000)]
    {
        assert_eq!(simd::round_to_bf16(f32::from_bits(bits)).to_bits(), expected);
    }
}

/// The same matrix in another layout.
fn moved<T: Tested>(matrix: &Matrix<T>, layout: &str, rows: usize, columns: usize) -> Matrix<T> {
    let mut to = Matrix::<T>::new(layout, rows, columns, 11);
    for i in 0..rows {
        for j in 0..columns {
            let at =
                to.offset as isize + i as isize * to.row_stride + j as isize * to.column_stride;
            to.data[at as usize] = T::from_f64(matrix.at(i, j));
        }
    }
    to
}

fn layouts_agree<T: Tested>(m: usize, n: usize, k: usize) {
    let (a, b) = (Matrix::<T>::new("rows", m, k, 3), Matrix::<T>::new("rows", k, n, 5));
    let c = Matrix::<T>::new("rows", m, n, 7);
    let layouts = ["rows", "columns", "both reversed", "spread"];
    for kernels in all_kernels::<T>() {
        let run = |a: &Matrix<T>, b: &Matrix<T>, rows: usize, plus: Option<(&Matrix<T>, f64)>| {
            let c = |_: usize| plus.map_or(a.view(), |(c, _)| c.view());
            let (a, b) = (|_: usize| a.view(), |_: usize| b.view());
            let plus = plus.map(|(_, alpha)| Plus { alpha, beta: 0.75, c: &c });
            let mut out = vec![T::from_f64(9.0); m * n];
            let product = Product { batch: 1, m, n, k, rows, a: &a, b: &b, plus };
            product.write_with(kernels, &mut out).unwrap();
            out.into_iter().map(|x| x.to_f64().to_bits()).collect::<Vec<_>>()
        };
        let (want, want_plus) = (run(&a, &b, m, None), run(&a, &b, m, Some((&c, 1.25))));
        // As part of a taller product the order of sums is the taller one's.
        let want_tall = run(&a, &b, m + 50, None);
        for left in layouts {
            for right in layouts {
                let case = format!("{m}x{n}x{k}, {left} by {right}");
                let (a, b) = (moved(&a, left, m, k), moved(&b, right, k, n));
                let c = moved(&c, right, m, n);
                assert!(run(&a, &b, m, None) == want, "{case}");
                assert!(run(&a, &b, m, Some((&c, 1.25))) == want_plus, "{case}, with an addend");
                assert!(run(&a, &b, m + 50, None) == want_tall, "{case}, tall");
            }
        }
    }
}

#[test]
fn layouts_do_not_change_bits() {
    for (m, n, k) in [
        (1, 1, 700),
        (1, 37, 1100),
        (37, 1, 1100),
        (1, 2100, 35),
        (3, 37, 531),
        (41, 2, 1037),
        (2, 3, 70),
        (4, 1030, 9),
        (19, 23, 29),
        (2, 23, 29),
        (67, 70, 530),
    ] {
        layouts_agree::<f32>(m, n, k);
        layouts_agree::<f64>(m, n, k);
        layouts_agree::<f16>(m, n, k);
        layouts_agree::<bf16>(m, n, k);
    }
}

/// A matrix's elements, so many bytes behind an aligned address.
struct Shifted<'a, T> {
    of: &'a Matrix<T>,
    bytes: Vec<u8>,
    start: usize,
}

impl<'a, T: Tested> Shifted<'a, T> {
    fn new(of: &'a Matrix<T>, by: usize) -> Self {
        let elements: &[u8] = bytemuck::cast_slice(&of.data);
        // Numbers beside the matrix are NaN.
        let mut bytes = vec![0xff; elements.len() + 128];
        let start = bytes.as_ptr().align_offset(64) + by;
        bytes[start..][..elements.len()].copy_from_slice(elements);
        Shifted { of, bytes, start }
    }

    fn view(&self) -> MatrixRef<'_, T> {
        let bytes = &self.bytes[self.start..][..size_of_val(&self.of.data[..])];
        MatrixRef { data: Elements::in_bytes(bytes), ..self.of.view() }
    }
}

fn addresses_agree<T: Tested>(m: usize, n: usize, k: usize, layouts: &[&str]) {
    let bits = |out: Vec<T>| out.into_iter().map(|x| x.to_f64().to_bits()).collect::<Vec<_>>();
    let product = |kernels, [a, b, c]: [MatrixRef<'_, T>; 3], with_addend: bool| {
        let c = |_: usize| c;
        let plus = with_addend.then_some(Plus { alpha: 1.25, beta: 0.75, c: &c });
        let mut out = vec![T::from_f64(9.0); m * n];
        Product { batch: 1, m, n, k, rows: m, a: &|_| a, b: &|_| b, plus }
            .write_with(kernels, &mut out)
            .unwrap();
        bits(out)
    };
    for &left in layouts {
        for &right in layouts {
            let (a, b) = (Matrix::<T>::new(left, m, k, 3), Matrix::<T>::new(right, k, n, 5));
            let c = Matrix::<T>::new(left, m, n, 7);
            for kernels in all_kernels::<T>() {
                for with_addend in [false, true] {
                    let want = product(kernels, [a.view(), b.view(), c.view()], with_addend);
                    for by in [1, size_of::<T>() / 2, size_of::<T>() - 1] {
                        let shifted = [&a, &b, &c].map(|matrix| Shifted::new(matrix, by));
                        let got =
                            product(kernels, shifted.each_ref().map(Shifted::view), with_addend);
                        let wide = kernels.columns;
                        let case = format!("{left} by {right}, {wide} wide, {by} bytes on");
                        assert!(got == want, "{m}x{n}x{k}, {case}, with addend: {with_addend}");
                    }
                }
            }
        }
    }
}

#[test]
fn matrices_at_odd_addresses_give_the_bits_of_aligned_ones_on_every_path() {
    for (m, n, k) in [
        // A few rows or columns, cut along `k` or not.
        (1, 1, 700),
        (1, 37, 1100),
        (37, 1, 1100),
        (1, 2100, 35),
        (3, 37, 531),
        (41, 2, 1037),
        (4, 1030, 9),
        // Small, with and without columns that are packed.
        (19, 23, 29),
        (9, 16, 21),
        // Blocks whose left matrix is read where it lies, if it is of what is summed in, and others.
        (67, 70, 530),
        (13, 1030, 40),
    ] {
        let layouts = ["rows", "columns", "spread"];
        addresses_agree::<f32>(m, n, k, &layouts);
        addresses_agree::<f64>(m, n, k, &layouts);
        addresses_agree::<f16>(m, n, k, &layouts);
        addresses_agree::<bf16>(m, n, k, &layouts);
    }
    // Sums that are kept between parts of `k`.
    addresses_agree::<bf16>(6, 19, 17000, &["rows", "columns"]);
}

fn addends_are_right<T: Tested>(m: usize, n: usize, k: usize) {
    let (a, b) = (Matrix::<T>::new("rows", m, k, 3), Matrix::<T>::new("columns", k, n, 5));
    let sum = |i: usize, j: usize| (0..k).map(|p| a.at(i, p) * b.at(p, j)).sum();
    let sums: Vec<f64> = (0..m * n).map(|at| sum(at / n, at % n)).collect();
    for layout in LAYOUTS.into_iter().chain(["one element"]) {
        for (alpha, beta) in [(1.0, 1.0), (0.5, 2.0), (0.0, 1.0), (1.5, 0.0)] {
            for kernels in all_kernels::<T>() {
                let mut c = Matrix::<T>::new(layout, m, n, 7);
                if layout == "one element" {
                    (c.row_stride, c.column_stride) = (0, 0);
                }
                if beta == 0.0 {
                    c.data.fill(T::from_f64(f64::NAN));
                }
                let (va, vb, vc) = (|_| a.view(), |_| b.view(), |_: usize| c.view());
                let plus = Some(Plus { alpha, beta, c: &vc });
                let mut out = vec![T::from_f64(9.0); m * n];
                let product = Product { batch: 1, m, n, k, rows: m, a: &va, b: &vb, plus };
                product.write_with(kernels, &mut out).unwrap();
                for i in 0..m {
                    for j in 0..n {
                        let added = if beta == 0.0 { 0.0 } else { beta * c.at(i, j) };
                        let (want, got) =
                            (alpha * sums[i * n + j] + added, out[i * n + j].to_f64());
                        let bound = want.abs() * T::EPSILON + 1e-5 * (k + 1) as f64;
                        let close = (got - want).abs() <= bound;
                        assert!(close, "{layout} {m}x{n}x{k} at {i},{j}: {got}, expected {want}");
                    }
                }
            }
        }
    }
}

#[test]
fn products_are_scaled_and_added_to_on_every_path() {
    for (m, n, k) in [
        (1, 37, 20),
        (37, 1, 20),
        (3, 30, 40),
        (30, 3, 40),
        (7, 9, 11),
        (7, 19, 530),
        (105, 70, 13),
        (6, 21, 0),
    ] {
        addends_are_right::<f32>(m, n, k);
        addends_are_right::<f64>(m, n, k);
        addends_are_right::<f16>(m, n, k);
        addends_are_right::<bf16>(m, n, k);
    }
    // Sums that are kept between parts of `k`.
    addends_are_right::<bf16>(6, 19, 17000);
}

#[test]
fn an_addend_is_added_before_the_only_rounding() {
    // 1 + 2⁻⁸ is a tie that goes down to 1 in bf16; with 2⁻⁸ more it is a number.
    let (a, ones) = ([1.0, 0.00390625].map(bf16::from_f32), [bf16::ONE; 2]);
    let c = [bf16::from_f32(0.00390625)];
    let (a, b, c) = (|_| one_row(&a), |_| one_column(&ones), |_| one_row(&c));
    let plus = Some(Plus { alpha: 1.0, beta: 1.0, c: &c });
    let mut out = [bf16::ZERO];
    let product = Product { batch: 1, m: 1, n: 1, k: 2, rows: 1, a: &a, b: &b, plus };
    product.write(&mut out).unwrap();
    assert_eq!(out[0].to_f32(), 1.0078125);
}
