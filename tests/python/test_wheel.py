"""The wheel works alone: it carries libtrireme, and that is what runs."""

import os
import subprocess
import sys
import zipfile

from conftest import MODEL, SOURCE

CODE = f"""
import trireme
with trireme.LLM({str(MODEL)!r}) as llm:
    print(llm.generate("In the beginning God", max_tokens=5).text)
print([line.split()[-1] for line in open("/proc/self/maps") if "libtrireme" in line][0])
"""


def test_wheel(tmp_path):
    make = [str(SOURCE / "python" / "make_wheel.sh"), os.environ["TRIREME_LIBRARY"], str(tmp_path)]
    environment = {**os.environ, "PYTHON": sys.executable}
    ended = subprocess.run(make, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    (wheel,) = tmp_path.glob("trireme-*-py3-none-linux_*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        archive.extractall(tmp_path / "site")
    assert {"trireme/py.typed", "trireme/lib/libtrireme.so.0", "trireme/lib/licenses/trireme"} <= set(names)
    carried = {name.split("/")[-1].split(".so")[0] for name in names if ".so" in name}
    assert "libcjson" in carried and not carried & {"libhwloc", "libc"}
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    del environment["TRIREME_LIBRARY"]
    ended = subprocess.run([sys.executable, "-c", CODE], env=environment, cwd=tmp_path, capture_output=True, text=True)
    text, library = ended.stdout.splitlines()
    assert text == " created the heaven and the"
    assert library == str(tmp_path / "site" / "trireme" / "lib" / "libtrireme.so.0")
