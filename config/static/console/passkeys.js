// Goes on to the next page once a passkey has been stored; the library's script stays where it is.
"use strict";
document.addEventListener("otp_webauthn.register_complete", () => {
  location.assign(document.querySelector("[data-then]").dataset.then);
});
