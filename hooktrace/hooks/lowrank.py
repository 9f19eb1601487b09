"""The linear algebra of low-rank compression: products with thin matrices, orthogonalisation.

    P = M Q                 multiply(M, Q, out=P)         M: (n, m)   P: (n, r)   Q: (m, r)
    Q = transpose(M) P      multiply(M.t(), P, out=Q)
    M = P transpose(Q)      outer(P, Q, out=M)
    P = orthonormal columns of P    orthogonalize(P)

Only speed is decided here, by the shapes: a BLAS's general product is slow where one side has two
to eight columns.  Measured with MKL on an AMD EPYC, float32, M of 512 x 4608 and r = 2: 2.8 ms as
one product, 0.6 ms as two matrix-vector products, which read M twice at the speed of memory.
All products are written to ``out``: an autocast around backward would cast those that are not.
"""

from __future__ import annotations

import torch

_MOST_VECTORS = 8
_LEAST_NUMEL = 1 << 14
_FASTER_BY_VECTORS = (torch.float32, torch.float64, torch.float16)
_HALF = (torch.float16, torch.bfloat16)

_LITTLE_LEFT = 0.5
"""A column that has no more of its norm left without those before it is projected again."""


def multiply(matrix: torch.Tensor, q: torch.Tensor, out: torch.Tensor) -> None:
    """Write ``matrix @ q`` to ``out``: shapes (n, m), (m, r) and (n, r)."""
    if not _by_vectors(matrix, q.shape[1]):
        torch.mm(matrix, q, out=out)
        return
    rows = q.t().contiguous()
    products = matrix.new_empty(rows.shape[0], matrix.shape[0])
    for row, product in zip(rows, products, strict=True):
        torch.mv(matrix, row, out=product)
    out.copy_(products.t())


def outer(p: torch.Tensor, q: torch.Tensor, out: torch.Tensor) -> None:
    """Write ``p @ q.T`` to ``out``: shapes (n, r), (m, r) and (n, m)."""
    if q.shape[1] == 1:
        torch.mul(p, q.view(1, -1), out=out)
    elif out.dtype is torch.float16 and out.is_cpu:
        # A product of float16 matrices takes 50 times as long on a CPU as one of float32 ones.
        wide = torch.empty(out.shape, dtype=torch.float32)
        out.copy_(torch.mm(p.float(), q.float().t(), out=wide))
    else:
        torch.mm(p, q.t(), out=out)


def orthogonalize(
    matrices: torch.Tensor, epsilon: float = 0.0, restart: torch.Tensor | None = None
) -> None:
    """Make the columns of each matrix orthonormal, in place.

    ``matrices``: a batch of shape (k, n, r) with r <= n.  For r <= 2, and for 16-bit types, by
    Gram-Schmidt with ``epsilon`` added to each norm; else by a QR decomposition, which needs no
    epsilon and knows no 16-bit types.  The result is the same orthonormal basis in each case, up to
    the signs of the columns.

    A column of zeros stays zero where others would divide by its norm.  With ``restart``, of shape
    (1, n, r), it becomes the column of ``restart`` instead: a matrix that power iteration starts
    from must not be zero, or it is zero for ever.

    If the columns before it make a column up, what is left of it is rounding, which is not at right
    angles to them: what such columns share would count twice in the product.  A gradient of lower
    rank than the state's (a batch of one) is full of them.  A column that has lost half of its norm
    is projected once more, which is enough (Giraud, Langou, Rozloznik: The loss of orthogonality in
    the Gram-Schmidt orthogonalization process, 2005).  If less than the rounding of the column that
    was given is left then, that may be a multiple of a column before (of equal rows it is): it
    counts as a column of zeros.
    """
    rank = matrices.shape[2]
    if rank > 2 and matrices.dtype not in _HALF:
        matrices.copy_(torch.linalg.qr(matrices)[0])
        return
    eps = torch.finfo(matrices.dtype).eps
    # In float32: float16 would have inf for a long column, below which everything is rounding.
    wide = torch.float32 if matrices.dtype in _HALF else matrices.dtype
    given = torch.linalg.vector_norm(matrices, dim=1, keepdim=True, dtype=wide)
    little, nothing = given * _LITTLE_LEFT, given * eps
    for i in range(rank):
        column = matrices[:, :, i : i + 1]
        norm = torch.linalg.vector_norm(column, dim=1, keepdim=True)
        if i:
            is_rounding = norm <= little[:, :, i : i + 1]
            before = matrices[:, :, :i]
            along = (before * column).sum(dim=1, keepdim=True)
            column.sub_((before * along).sum(dim=2, keepdim=True) * is_rounding)
            again = torch.linalg.vector_norm(column, dim=1, keepdim=True)
            norm = torch.where(is_rounding, again, norm)
        is_zero = (norm == 0) | (norm < nothing[:, :, i : i + 1])
        column.masked_fill_(is_zero, 0)
        column.div_(norm.add_(epsilon if epsilon else is_zero))
        if restart is not None:
            column.add_(restart[:, :, i : i + 1] * is_zero)
        if i + 1 < rank:
            rest = matrices[:, :, i + 1 :]
            rest.sub_((column * rest).sum(dim=1, keepdim=True) * column)


def _by_vectors(matrix: torch.Tensor, rank: int) -> bool:
    return (
        matrix.is_cpu
        and 1 < rank <= _MOST_VECTORS
        and matrix.numel() >= _LEAST_NUMEL
        and matrix.dtype in _FASTER_BY_VECTORS
    )
