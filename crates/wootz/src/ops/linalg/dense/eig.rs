//! Eigenvalues of any square matrix: reflections bring it to Hessenberg's form, shifted QR steps to
//! Schur's, and eigenvectors of a triangular matrix follow by substitution.

use super::householder::{Reflector, product};
use super::{Complex, EPSILON, Failure, Matrix, Number};

/// QR steps for one eigenvalue; three are common.
const STEPS: usize = 300;

/// Eigenvalues of a matrix of finite values and, if wanted, eigenvectors as columns, each of length 1
/// with a real largest value.
pub(in crate::ops::linalg) fn eig(
    mut a: Matrix<Complex>,
    vectors: bool,
) -> Result<(Vec<Complex>, Matrix<Complex>), Failure> {
    let n = a.rows;
    let scale = a.normalize();
    let mut reflectors = Vec::new();
    for k in 0..n.saturating_sub(1) {
        let column = (k + 1..n).map(|i| a[(i, k)]).collect();
        let (reflector, value) = Reflector::zeroing(k + 1, column);
        reflector.on_rows(&mut a, k + 1, true);
        reflector.on_columns(&mut a, 0);
        a[(k + 1, k)] = Complex::from_real(value);
        for i in k + 2..n {
            a[(i, k)] = Complex::ZERO;
        }
        reflectors.push(reflector);
    }
    // Schur vectors as rows, which lie together in memory.
    let mut q = match vectors {
        true => product(&reflectors, n, n).transposed(),
        false => Matrix::zeros(n, 0),
    };
    triangularize(&mut a, &mut q)?;
    let values = (0..n).map(|k| a[(k, k)].scale(scale)).collect();
    let vectors = if vectors { eigenvectors(&a, &q) } else { Matrix::zeros(n, 0) };
    Ok((values, vectors))
}

/// Makes a Hessenberg matrix triangular.
fn triangularize(t: &mut Matrix<Complex>, q: &mut Matrix<Complex>) -> Result<(), Failure> {
    let norm = t.values.iter().map(|value| value.modulus()).fold(0.0, f64::max);
    let mut last = t.rows.saturating_sub(1);
    let mut steps = 0;
    while last > 0 {
        let small = |k: usize| {
            let neighbours = t[(k, k)].modulus() + t[(k - 1, k - 1)].modulus();
            let neighbours = if neighbours == 0.0 { norm } else { neighbours };
            t[(k, k - 1)].modulus() <= EPSILON * neighbours
        };
        let first = (1..=last).rev().find(|&k| small(k)).unwrap_or(0);
        if first > 0 {
            t[(first, first - 1)] = Complex::ZERO;
        }
        if first == last {
            (last, steps) = (last - 1, 0);
            continue;
        }
        steps += 1;
        if steps > STEPS {
            return Err(Failure::Endless);
        }
        // Now and then an unusual shift, for matrices that the usual one leaves as they are.
        let shift = match steps % 10 {
            0 => t[(last, last)] + Complex::from_real(t[(last, last - 1)].modulus()),
            _ => wilkinson(t, last),
        };
        step(t, q, first, last, shift);
    }
    Ok(())
}

/// The eigenvalue of the last two rows and columns that is nearer to the last value.
fn wilkinson(t: &Matrix<Complex>, last: usize) -> Complex {
    let (a, b) = (t[(last - 1, last - 1)], t[(last - 1, last)]);
    let (c, d) = (t[(last, last - 1)], t[(last, last)]);
    let half = (a - d).scale(0.5);
    let root = (half * half + b * c).sqrt();
    let sum = half + root;
    let other = half - root;
    let larger = if sum.modulus() >= other.modulus() { sum } else { other };
    if larger == Complex::ZERO { d } else { d - b * c * larger.reciprocal() }
}

/// A QR step on the block from `first` to `last`.
fn step(
    t: &mut Matrix<Complex>,
    q: &mut Matrix<Complex>,
    first: usize,
    last: usize,
    shift: Complex,
) {
    for k in first..=last {
        t[(k, k)] -= shift;
    }
    let mut rotations = Vec::with_capacity(last - first);
    for k in first..last {
        let (x, y) = (t[(k, k)], t[(k + 1, k)]);
        let (c, s) = zeroing(x, y);
        let (upper, lower) = t.two_rows_mut(k, k + 1);
        rotate(&mut upper[k..], &mut lower[k..], c, s);
        rotations.push((c, s));
    }
    for (k, (c, s)) in (first..last).zip(rotations) {
        for i in 0..=k + 1 {
            let (x, y) = (t[(i, k)], t[(i, k + 1)]);
            t[(i, k)] = x.scale(c) + y * s.conj();
            t[(i, k + 1)] = y.scale(c) - x * s;
        }
        if q.columns > 0 {
            let (x, y) = q.two_rows_mut(k, k + 1);
            rotate(x, y, c, s.conj());
        }
    }
    for k in first..=last {
        t[(k, k)] += shift;
    }
}

/// Cosine and sine of the rotation that takes `(x, y)` to `(r, 0)`.
fn zeroing(x: Complex, y: Complex) -> (f64, Complex) {
    let (size, r) = (x.modulus(), x.modulus().hypot(y.modulus()));
    if size == 0.0 {
        return (0.0, Complex::ONE);
    }
    (size / r, (x.scale(1.0 / size) * y.conj()).scale(1.0 / r))
}

fn rotate(x: &mut [Complex], y: &mut [Complex], c: f64, s: Complex) {
    for (x, y) in x.iter_mut().zip(y) {
        (*x, *y) = (x.scale(c) + s * *y, y.scale(c) - s.conj() * *x);
    }
}

/// Eigenvectors of the triangular matrix `t`, turned by the Schur vectors in the rows of `q`.
fn eigenvectors(t: &Matrix<Complex>, q: &Matrix<Complex>) -> Matrix<Complex> {
    let n = t.rows;
    let mut vectors = Matrix::zeros(n, n);
    for k in 0..n {
        let mut x = vec![Complex::ZERO; k + 1];
        x[k] = Complex::ONE;
        for i in (0..k).rev() {
            let mut sum = Complex::ZERO;
            for (&value, &x) in t.row(i)[i + 1..=k].iter().zip(&x[i + 1..]) {
                sum += value * x;
            }
            // Equal eigenvalues are taken apart by as much as they may be off in a matrix near 1.
            let mut gap = t[(k, k)] - t[(i, i)];
            if gap.modulus() < EPSILON {
                gap = Complex::from_real(EPSILON);
            }
            x[i] = sum * gap.reciprocal();
            // The substitution grows without bound where there are too few eigenvectors.
            let size = x[i].modulus();
            if size > 1e100 {
                x.iter_mut().for_each(|x| *x = x.scale(1.0 / size));
            }
        }
        let mut vector = vec![Complex::ZERO; n];
        for (i, &x) in x.iter().enumerate() {
            for (value, &q) in vector.iter_mut().zip(q.row(i)) {
                *value += x * q;
            }
        }
        let length = vector.iter().map(|value| value.square_modulus()).sum::<f64>().sqrt();
        let mut largest = Complex::ZERO;
        for &value in &vector {
            if value.modulus() > largest.modulus() {
                largest = value;
            }
        }
        let phase = largest.conj().scale(1.0 / (largest.modulus() * length));
        for (i, value) in vector.into_iter().enumerate() {
            vectors[(i, k)] = value * phase;
        }
    }
    vectors
}
