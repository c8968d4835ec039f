"""The npy format, numpy's own for one array; and npz, an archive of such files, read from a stream.

An npy file is a magic text, a version, the text of a Python dict (`descr`, `fortran_order`, `shape`), and the array.
Versions 1.0, 2.0 and 3.0 are read. The text is matched by regular expressions: nothing of it is evaluated.

What is read are plain values in little-endian order. Big-endian arrays, objects (which are pickles) and structures are
refused; so is a text in an unusual form, as of a dtype without byte order. An array in Fortran order is received with
the values and the shape that it has, and is F-contiguous in memory; its bytes are those of the transpose, and it cannot
come in windows.

An npz archive is a zip file. Its members are read in order as they come, each as a message of its own; see `Archive`.
"""

from streamcodec.formats.npy.archive import Archive
from streamcodec.formats.npy.reading import Header, decoder, read
from streamcodec.formats.npy.writing import encode, encode_archive

__all__ = ["Archive", "Header", "decoder", "encode", "encode_archive", "read"]
