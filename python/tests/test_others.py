"""Other libraries over our memory, without a copy: each where it is installed."""

import numpy as np
import pytest
import softfault


@pytest.fixture
def rows(tmp_path, engine):
    file = tmp_path / "rows"
    np.arange(1 << 20, dtype="f4").tofile(file)
    return softfault.memmap(file, dtype="f4", mode="c", shape=(1 << 10, 1 << 10))


def test_torch(rows):
    torch = pytest.importorskip("torch", reason="torch is not installed: not tried")
    tensor = torch.from_numpy(rows)
    assert tensor.data_ptr() == rows.__array_interface__["data"][0]
    assert float(tensor[1000, 5]) == float(rows[1000, 5])
    tensor[3] = 1
    assert rows[3].sum() == 1024


def test_arrow(rows):
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed: not tried")
    buffer = pyarrow.py_buffer(rows._mmap)
    assert buffer.address == rows.__array_interface__["data"][0]
    column = pyarrow.Array.from_buffers(pyarrow.float32(), rows.size, [None, buffer])
    assert column[1_000_005].as_py() == 1_000_005


def test_pandas(rows):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed: not tried")
    series = pandas.Series(rows.reshape(-1), copy=False)
    assert np.shares_memory(series.to_numpy(), rows)
    assert series[1_000_005] == 1_000_005
