"""The npy format: numpy's format for one array; and npz, an archive of such files. Both are read from a stream.

An npy file is a magic text, a version, the text of a Python dict (`descr`, `fortran_order`, `shape`), and the array.
Versions 1.0, 2.0 and 3.0 are read. The text is matched by regular expressions, and is never evaluated.

Only plain values are read. Objects (which are pickles) and structures are refused. A text in an unusual form is
refused, too, such as a dtype without byte order. As with numpy, a big-endian array stays so, and its dtype says it. An
array in Fortran order is received with its values and its shape, and is F-contiguous in memory. Its bytes are those of
the transpose, so it cannot come in windows.

An npz archive is a zip file. Its members are read in order as they come, each as a message of its own; see `Archive`.
"""

from streamcodec.formats.npy.archive import Archive
from streamcodec.formats.npy.reading import NpyHeader, decoder, read
from streamcodec.formats.npy.writing import encode, encode_archive

__all__ = ["Archive", "NpyHeader", "decoder", "encode", "encode_archive", "read"]
