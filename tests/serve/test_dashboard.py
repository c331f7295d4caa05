"""The dashboard, in a real browser."""

import pytest

from tests.browser import BROWSER, page
from tests.serve.conftest import TOKEN, array

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium here; apt-get install chromium")


@pytest.mark.parametrize(("width", "dark"), [(1000, False), (390, True)], ids=["desk", "phone, dark"])
def test_it_shows_a_stream_and_steers_it(serving, tmp_path, width, dark):
    with serving(method="test") as client:
        client.predict("camera-1", array(80))
        with page(tmp_path / "browser", width=width, dark=dark) as shown:
            shown.open(client.url)
            shown.wait_for("!document.getElementById('login').hidden")
            assert shown.value("document.getElementById('board').hidden"), "nothing is shown without the token"
            shown.value(
                f"document.getElementById('token').value = '{TOKEN}'; document.querySelector('form button').click()"
            )
            shown.wait_for("document.querySelectorAll('#histogram rect').length > 10")
            text = shown.wait_for("document.getElementById('numbers').innerText")
            assert "80" in text
            assert "threshold" in text
            assert shown.value("document.querySelectorAll('#last img').length") > 0
            assert shown.value("document.documentElement.scrollWidth") <= width, "nothing sticks out"
            shown.picture(tmp_path / "dashboard.png")
            shown.value("document.querySelector('[data-act=freeze]').click()")
            shown.wait_for("document.getElementById('state').textContent == 'frozen'")
            assert client.stats("camera-1")["frozen"]
            shown.value("document.getElementById('look').click()")
            shown.wait_for("document.querySelectorAll('.group').length > 0")
            client.predict("camera-1", array(40, 3))
            shown.wait_for("document.getElementById('numbers').innerText.includes('120')")
            errors = [error for error in shown.errors if "401" not in error]
            assert errors == []
            assert all(url.startswith((client.url, "data:", "about:")) for url in shown.requests), (
                "none leaves the host"
            )
