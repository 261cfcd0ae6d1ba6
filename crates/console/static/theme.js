// Sets the chosen theme before the first paint, so that the page does not change colour.
(() => {
  let theme = null;
  try {
    theme = localStorage.getItem("restive.theme");
  } catch {
    // Storage is blocked: the theme of the system is used.
  }
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
})();
