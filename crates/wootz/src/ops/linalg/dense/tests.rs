//! Factors of random, singular, graded and scaled matrices, multiplied together again.

use super::complex::Complex;
use super::eig::eig;
use super::{Failure, Lu, Matrix, Number, Vectors, cholesky, eigh, qr, solve_triangular, svd};

/// Numbers between -1 and 1, the same in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }

    fn matrix(&mut self, rows: usize, columns: usize) -> Matrix<f64> {
        Matrix::new(rows, columns, (0..rows * columns).map(|_| self.next()).collect())
    }

    fn complex(&mut self, rows: usize, columns: usize) -> Matrix<Complex> {
        let values = (0..rows * columns).map(|_| Complex::new(self.next(), self.next())).collect();
        Matrix::new(rows, columns, values)
    }
}

fn times<T: Number>(a: &Matrix<T>, b: &Matrix<T>) -> Matrix<T> {
    assert_eq!(a.columns, b.rows);
    let mut product = Matrix::zeros(a.rows, b.columns);
    for i in 0..a.rows {
        for j in 0..b.columns {
            for k in 0..a.columns {
                product[(i, j)] += a[(i, k)] * b[(k, j)];
            }
        }
    }
    product
}

fn diagonal<T: Number>(rows: usize, columns: usize, values: &[f64]) -> Matrix<T> {
    let mut matrix = Matrix::zeros(rows, columns);
    for (i, &value) in values.iter().enumerate() {
        matrix[(i, i)] = T::from_real(value);
    }
    matrix
}

fn largest<T: Number>(a: &Matrix<T>) -> f64 {
    a.values.iter().map(|value| value.modulus()).fold(0.0, f64::max)
}

fn assert_near<T: Number>(a: &Matrix<T>, b: &Matrix<T>, scale: f64, what: &str) {
    assert_eq!((a.rows, a.columns), (b.rows, b.columns), "{what}");
    for (x, y) in a.values.iter().zip(&b.values) {
        let error = (*x - *y).modulus();
        assert!(error <= 1e-12 * scale, "{what}: {x:?} and {y:?} of {scale:e}");
    }
}

fn assert_orthonormal<T: Number>(q: &Matrix<T>, what: &str) {
    let identity = Matrix::identity(q.columns, q.columns);
    assert_near(&times(&q.adjoint(), q), &identity, 1.0, what);
}

/// Matrices of all kinds, with what they are.
fn matrices() -> Vec<(String, Matrix<f64>)> {
    let mut random = Random(88172645463325252);
    let mut all = Vec::new();
    for (m, n) in
        [(0, 0), (1, 1), (1, 4), (2, 2), (3, 3), (5, 3), (3, 5), (8, 8), (20, 20), (30, 7)]
    {
        let mut add = |what: &str, matrix: Matrix<f64>| {
            all.push((format!("{what} matrix of {m} by {n}"), matrix));
        };
        for _ in 0..8 {
            let a = random.matrix(m, n);
            for (what, by) in [("tiny", 1e-200), ("huge", 1e200), ("random", 1.0)] {
                let values = a.values.iter().map(|value| value * by).collect();
                add(what, Matrix::new(m, n, values));
            }
            let low = times(&random.matrix(m, 2), &random.matrix(2, n));
            add("low-rank", low);
            let graded = (a.values.iter().enumerate())
                .map(|(place, value)| value * 10f64.powi(-2 * (place / n.max(1)) as i32));
            add("graded", Matrix::new(m, n, graded.collect()));
            let whole = a.values.iter().map(|value| (value * 1.6).round()).collect();
            add("whole-number", Matrix::new(m, n, whole));
        }
        add("zero", Matrix::zeros(m, n));
        add("one", Matrix::new(m, n, vec![1.0; m * n]));
        add("unit", Matrix::identity(m, n));
    }
    all
}

#[test]
fn singular_vectors_and_values_make_the_matrix_again() {
    for (what, a) in matrices() {
        let scale = largest(&a);
        for vectors in [Vectors::Thin, Vectors::Full] {
            let found = svd(a.clone(), vectors).unwrap();
            assert_orthonormal(&found.u, &what);
            assert_orthonormal(&found.vh.adjoint(), &what);
            let s = diagonal(found.u.columns, found.vh.rows, &found.s);
            assert_near(&times(&times(&found.u, &s), &found.vh), &a, scale * 10.0, &what);
            assert!(found.s.windows(2).all(|pair| pair[0] >= pair[1]), "{what}: {:?}", found.s);
            let alone = svd(a.clone(), Vectors::None).unwrap().s;
            for (x, y) in found.s.iter().zip(&alone) {
                assert!((x - y).abs() <= 1e-13 * scale * 30.0, "{what}: {x} and {y}");
            }
        }
    }
}

#[test]
fn singular_vectors_of_complex_matrices_make_them_again() {
    let mut random = Random(5);
    let drawn = [(1, 1), (4, 4), (6, 3), (3, 6)].map(|(m, n)| random.complex(m, n));
    // What is left of these after each reflection is smaller and smaller.
    let alike = [8, 30].map(|n| Matrix::new(n, n, vec![Complex::new(1.0, 1.0); n * n]));
    for a in drawn.into_iter().chain(alike) {
        let (m, n) = (a.rows, a.columns);
        let found = svd(a.clone(), Vectors::Full).unwrap();
        assert_orthonormal(&found.u, "U");
        assert_orthonormal(&found.vh.adjoint(), "V");
        let s = diagonal(m, n, &found.s);
        assert_near(&times(&times(&found.u, &s), &found.vh), &a, 10.0, "product");
        let alone = svd(a, Vectors::None).unwrap().s;
        for (x, y) in found.s.iter().zip(&alone) {
            assert!((x - y).abs() <= 1e-11, "{x} and {y}");
        }
    }
}

#[test]
fn columns_of_q_are_orthonormal_and_q_times_r_is_the_matrix() {
    for (what, a) in matrices() {
        let (q, r) = qr(a.clone());
        assert_orthonormal(&q, &what);
        assert_near(&times(&q, &r), &a, largest(&a) * 10.0, &what);
        for i in 0..r.rows {
            assert!(r.row(i)[..i.min(r.columns)].iter().all(|value| *value == 0.0), "{what}");
        }
    }
}

#[test]
fn eigenvectors_of_symmetric_matrices_are_orthonormal() {
    for (what, a) in matrices().into_iter().filter(|(_, a)| a.rows == a.columns) {
        let mut full = a.clone();
        for i in 0..a.rows {
            for j in 0..i {
                full[(j, i)] = a[(i, j)];
            }
        }
        let (w, v) = eigh(&a, false, true).unwrap();
        let scale = largest(&a) * 10.0;
        assert_orthonormal(&v, &what);
        assert_near(&times(&full, &v), &times(&v, &diagonal(a.rows, a.rows, &w)), scale, &what);
        assert!(w.windows(2).all(|pair| pair[0] <= pair[1]), "{what}: {w:?}");
        let (of_upper, _) = eigh(&a.transposed(), true, false).unwrap();
        for (x, y) in w.iter().zip(&of_upper) {
            assert!((x - y).abs() <= 1e-12 * scale, "{what}: {x} and {y}");
        }
    }
}

#[test]
fn eigenvectors_of_hermitian_matrices_are_orthonormal() {
    let a = Random(7).complex(5, 5);
    let a = times(&a, &a.adjoint());
    let (w, v) = eigh(&a, false, true).unwrap();
    assert_orthonormal(&v, "V");
    assert_near(&times(&a, &v), &times(&v, &diagonal(5, 5, &w)), 50.0, "product");
}

#[test]
fn eigenvectors_of_any_matrix_are_stretched_by_eigenvalues() {
    let squares = matrices().into_iter().filter(|(_, a)| a.rows == a.columns);
    let turn = Matrix::new(2, 2, vec![0.0, -1.0, 1.0, 0.0]);
    let shift = Matrix::new(3, 3, vec![0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0]);
    let jordan = Matrix::new(3, 3, vec![2.0, 1.0, 0.0, 0.0, 2.0, 1.0, 0.0, 0.0, 2.0]);
    let others = [("turn", turn), ("shift", shift), ("Jordan", jordan)];
    for (what, a) in squares.chain(others.map(|(what, a)| (what.to_string(), a))) {
        let values = a.values.iter().map(|&value| Complex::from_real(value)).collect();
        let complex = Matrix::new(a.rows, a.rows, values);
        let (w, v) = eig(complex.clone(), true).unwrap();
        let mut stretched = v.clone();
        for i in 0..a.rows {
            for (value, &w) in stretched.row_mut(i).iter_mut().zip(&w) {
                *value = *value * w;
            }
        }
        assert_near(&times(&complex, &v), &stretched, largest(&a) * 100.0, &what);
        for k in 0..a.rows {
            let length: f64 = (0..a.rows).map(|i| v[(i, k)].square_modulus()).sum();
            assert!((length - 1.0).abs() < 1e-12, "{what}: length {length}");
        }
    }
}

#[test]
fn rows_of_l_times_u_are_those_of_the_matrix() {
    for (what, a) in matrices() {
        let lu = Lu::new(a.clone());
        let count = a.rows.min(a.columns);
        let (mut l, mut u) = (Matrix::identity(a.rows, count), Matrix::zeros(count, a.columns));
        for i in 0..a.rows {
            for j in 0..a.columns {
                match j < i {
                    true if j < count => l[(i, j)] = lu.factors[(i, j)],
                    false if i < count => u[(i, j)] = lu.factors[(i, j)],
                    _ => {}
                }
            }
        }
        assert!(l.values.iter().all(|value| value.abs() <= 1.0), "{what}");
        let product = times(&l, &u);
        let ordered = lu.order().into_iter().flat_map(|row| product.row(row as usize).to_vec());
        let again = Matrix::new(a.rows, a.columns, ordered.collect());
        assert_near(&again, &a, largest(&a) * 10.0, &what);
    }
}

#[test]
fn systems_are_solved_and_singular_ones_refused() {
    let mut random = Random(11);
    for n in [1, 2, 5, 12] {
        let mut a = random.matrix(n, n);
        let x = random.matrix(n, 3);
        assert_near(&Lu::new(a.clone()).solve(times(&a, &x)).unwrap(), &x, 1e3, "solve");
        for i in 0..n {
            a[(i, i)] += 3.0;
            a.row_mut(i)[i + 1..].fill(0.0);
        }
        let lower = solve_triangular(&a, times(&a, &x), false).unwrap();
        assert_near(&lower, &x, 1e3, "lower");
        let a = a.transposed();
        let upper = solve_triangular(&a, times(&a, &x), true).unwrap();
        assert_near(&upper, &x, 1e3, "upper");
    }
    let singular = Matrix::new(2, 2, vec![1.0, 2.0, 2.0, 4.0]);
    let solved = Lu::new(singular).solve(Matrix::<f64>::identity(2, 2));
    assert_eq!(solved.err(), Some(Failure::Singular(1)));
}

#[test]
fn triangular_roots_make_positive_matrices_again() {
    let mut random = Random(3);
    for (n, rank) in [(1, 1), (4, 6), (9, 9)] {
        let a = random.matrix(n, rank);
        let a = times(&a, &a.transposed());
        let l = cholesky(&a);
        assert_near(&times(&l, &l.transposed()), &a, 10.0, "product");
    }
    let semi = Matrix::new(3, 3, vec![1.0, 0.0, 2.0, 0.0, 0.0, 0.0, 2.0, 0.0, 5.0]);
    let l = cholesky(&semi);
    assert_near(&times(&l, &l.transposed()), &semi, 1.0, "semi-definite");
    assert!(cholesky(&Matrix::new(1, 1, vec![-1.0]))[(0, 0)].is_nan());
}
